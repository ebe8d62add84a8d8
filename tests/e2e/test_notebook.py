"""Submit from a notebook kernel, and from a terminal of Jupyter. The kernel is a real ipykernel process."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import time
from pathlib import Path

import pytest

import mlworkbench
from tests.e2e.python_environments import cached_environment

TRAIN = """
import sys, ipykernel
from mlworkbench import log
print("python", sys.executable, sys.argv[1:])
log("loss", float(sys.argv[1]))
"""
CLIENT = """
import json, sys
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(startup_timeout=120)
results = []
for cell in json.load(sys.stdin):
    texts = []
    def collect(message):
        content = message["content"]
        texts.append(content.get("text") or "".join(content.get("data", {}).get("text/plain", "")))
    reply = client.execute_interactive(cell, output_hook=collect, timeout=120)
    results.append([reply["content"]["status"], "".join(texts)])
client.stop_channels()
manager.shutdown_kernel(now=True)
print(json.dumps(results))
"""


RECORD_RUNS = """
import mlworkbench
for value, name in enumerate(["one", "two"], 1):
    with mlworkbench.start_run(name=name):
        mlworkbench.log("loss", value)
"""


@pytest.fixture(scope="module")
def kernel_python():
    """A user's environment with Jupyter's kernel. mlworkbench comes from PYTHONPATH."""
    return cached_environment("notebook", "ipykernel", "jupyter_client")


@pytest.fixture
def notebook(user, kernel_python):
    """A function that runs cells in a new kernel, and returns the status and the text of each."""
    sources = [Path(mlworkbench.__file__).parents[1], Path(sysconfig.get_paths()["purelib"])]
    env = {**user.env, "PYTHONPATH": ":".join(map(str, sources))}

    def run(project: Path, *cells: str, **variables: str) -> list[list[str]]:
        done = subprocess.run(
            [kernel_python, "-c", CLIENT],
            cwd=project,
            env={**env, **variables},
            input=json.dumps(cells),
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, done.stderr
        results: list[list[str]] = json.loads(done.stdout.splitlines()[-1])
        return results

    return run


def write_notebook(path: Path, *sources: str) -> None:
    cells = [{"cell_type": "code", "source": source.splitlines(keepends=True)} for source in sources]
    text = {"cell_type": "markdown", "source": "# Explore"}
    path.write_text(json.dumps({"cells": [text, *cells], "metadata": {"language_info": {"name": "python"}}}))


def test_magic_and_function_use_the_python_of_the_kernel(user, notebook, kernel_python):
    project = user.project("demo", train=TRAIN)
    write_notebook(
        project / "explore.ipynb",
        "%load_ext mlworkbench\n%mlw submit explore.ipynb  # this cell does nothing in the run",
        "import os, sys\nfrom mlworkbench import log",
        "%time rate = float(sys.argv[1])\nlog('rate', rate)",
        "!echo from the shell",
        "def half(value):\n    return value / rate\nhalf(1)",
    )
    itself_file = project / "notes" / "itself.ipynb"
    itself_file.parent.mkdir()
    write_notebook(itself_file, "%mlw submit", "print('from the notebook itself')")
    os.utime(itself_file, 2 * (time.time() + 3600,))  # saved after all cells of this test
    loaded, submitted, failed, called, as_notebook, divided, recorded, itself, touched, outdated = notebook(
        project,
        "%load_ext mlworkbench\nrate = 0.5",
        "%mlw submit train.py {rate} 'two words'",
        "%mlw submit missing.py",
        """import mlworkbench
run = mlworkbench.submit(".", mlworkbench.Request("train.py", ["0.25"]))
print(run.wait().status.value, *run.logs())""",
        "%mlw submit explore.ipynb 0.5",
        "%mlw submit explore.ipynb 0",
        RECORD_RUNS,
        "%mlw submit",
        f"import os, time; os.utime({str(itself_file)!r}, 2 * (time.time() - 3600,))",
        "%mlw submit",
        JPY_SESSION_NAME=str(itself_file),
    )
    assert loaded == ["ok", ""]
    assert submitted[0] == "ok"
    assert f"python {kernel_python} ['0.5', 'two words']" in submitted[1]
    assert "loss" in submitted[1]
    assert failed[0] == "error", "later cells must not run"
    assert "missing.py" in failed[1]
    assert called[0] == "ok"
    assert called[1].startswith(f"Completed python {kernel_python} ['0.25']")
    assert as_notebook[0] == "ok", as_notebook[1]
    assert "from the shell\n2.0\n" in as_notebook[1], "as the notebook shows it"
    assert "Metrics:   rate 0.5" in as_notebook[1]
    assert divided[0] == "error"
    assert 'File "explore.ipynb, cell 5", line 2, in half\n    return value / rate' in divided[1]
    assert "Cause:     ZeroDivisionError" in divided[1]
    assert "notebook.py" not in divided[1], "only the frames of the user"
    assert recorded[0] == "ok", recorded[1]
    listed = json.loads(user.mlw("history", "list", "--all", "-o", "json", cwd=project).out)
    runs = {run["name"]: (run["loss"], run["status"]) for run in listed if run["name"]}
    assert runs["one"] == (1, "Completed") and runs["two"] == (2, "Completed"), runs
    assert "submitting itself.ipynb" in itself[1] and "from the notebook itself" in itself[1], itself[1]
    assert "was saved" not in itself[1]
    assert touched[0] == "ok", touched[1]
    assert "note: itself.ipynb was saved 1 h ago, without a cell that ran since; save the notebook" in outdated[1]


def test_a_terminal_of_jupyter_names_the_python(user, kernel_python):
    project = user.project("demo", train="print('done')")
    terminal = {"JUPYTER_SERVER_URL": "http://localhost:8888/", "JUPYTER_SERVER_ROOT": str(project)}
    done = user.mlw("submit", "train.py", cwd=project, env=terminal)
    (note,) = [line for line in done.err.splitlines() if "notebook kernel" in line]
    assert note.startswith("note: the script uses /")
    assert "run '%mlw submit' in the notebook" in note
    active = {"VIRTUAL_ENV": str(kernel_python.parents[1]), "PATH": f"{kernel_python.parent}:{user.env['PATH']}"}
    done = user.mlw("submit", "train.py", cwd=project, env={**terminal, **active})
    assert "notebook kernel" not in done.err
    assert "notebook kernel" not in user.mlw("submit", "train.py", cwd=project).err
