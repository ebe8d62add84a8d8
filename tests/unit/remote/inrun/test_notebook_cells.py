"""Notebooks that run as scripts, with a Python that has no IPython."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import mlworkbench
from tests.interpreters import oldest_and_newest

PROGRAM = Path(mlworkbench.__file__).parent / "remote" / "inrun" / "mlworkbench" / "_launch" / "notebook.py"
PYTHONS = [path for _, path in oldest_and_newest((3, 6))]


def code(*sources):
    return {"cells": [{"cell_type": "code", "source": source} for source in sources]}


def run(folder, content, *arguments, python=PYTHONS[-1]):
    (folder / "a.ipynb").write_text(content if isinstance(content, str) else json.dumps(content))
    command = [python, PROGRAM, "a.ipynb", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("python", PYTHONS)
def test_cells_run_in_order_and_print_their_last_value(tmp_path, python):
    (tmp_path / "helper.py").write_text("def twice(value):\n    return 2 * value\n")
    cells = (
        "%load_ext mlworkbench\n%mlw submit a.ipynb\n%matplotlib inline\n%config InlineBackend.dpi = 100",
        "import sys\nfrom helper import twice\nx = twice(len(sys.argv))\nx",
        ["if x:\n", "    print('list', __name__)\n"],
        "x;",
        "None",
        "# only a comment",
        "display(x, 'y')",
        "def f():\n    raise ValueError('wrong')\n\nf()",
        "print('never')",
    )
    done = run(tmp_path, code(*cells), "--lr", "1", python=python)
    assert done.stdout.splitlines() == ["6", "list __main__", "6", "'y'"]
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "Traceback (most recent call last):"
    assert 'File "a.ipynb, cell 8", line 2, in f\n    raise ValueError' in done.stderr
    assert done.stderr.endswith("\nValueError: wrong\n") and "notebook.py" not in done.stderr


def test_old_format(tmp_path):
    sheet = {"cells": [{"cell_type": "heading", "source": "x"}, {"cell_type": "code", "input": ["print(1)"]}]}
    assert run(tmp_path, {"worksheets": [sheet]}).stdout == "1\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("print(1)", "it is not a notebook"),
        ("[1]", "it is not a notebook"),
        ('{"cells": [7]}', "it is not a notebook"),
        ('{"cells": [{"cell_type": "code", "source": 7}]}', "it is not a notebook"),
        ({"metadata": {"language_info": {"name": "R"}}, "cells": []}, "its language is R, and only Python notebooks"),
        (code("1", "%timeit 1"), "cell 2 uses IPython, which is not installed: add ipython to the packages"),
        (code("files = !ls"), "cell 1 uses IPython"),
    ],
)
def test_notebooks_that_cannot_be_run(tmp_path, content, message):
    done = run(tmp_path, content)
    assert done.returncode == 1 and done.stderr.startswith(f"a.ipynb cannot be run: {message}"), done.stderr


def test_a_syntax_error_names_the_cell(tmp_path):
    done = run(tmp_path, code("1", "x = = 2"))
    assert done.returncode == 1 and 'File "a.ipynb, cell 2", line 1' in done.stderr and "ast.py" not in done.stderr


def test_exit_codes_of_the_notebook(tmp_path):
    assert run(tmp_path, code("import sys", "sys.exit(3)")).returncode == 3
