"""Problems that users of the original product reported, each checked against this product.

Problems with Docker and SSH targets have their own tests. The desktop program and Azure have no counterpart here.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.conftest import MLW, REAL_PYTHON, need
from tests.supervisor.conftest import until

TICKING = "import time\nn = 0\nwhile True:\n    print('tick', n, flush=True)\n    n += 1\n    time.sleep(0.02)\n"


def configure(project: Path, name: str, line: str) -> None:
    path = project / "aml_config" / name
    path.write_text(f"{path.read_text()}\n{line}\n")


def test_large_project_runs_and_largest_files_are_listed(user):
    """Complaint: a project over 25 MB was refused, at first without a clear message."""
    project = user.project("demo", train="print(1)")
    for folder, size in (("texts", 40_000_000), ("images/raw", 90_000_000)):
        (project / folder).mkdir(parents=True)
        (project / folder / "all.bin").touch()
        os.truncate(project / folder / "all.bin", size)
    dry = user.mlw("submit", "--dry-run", "train.py", cwd=project)
    assert dry.code == 0 and "130 MB" in dry.err
    assert dry.err.index("images/raw/all.bin (90.0 MB)") < dry.err.index("texts/all.bin (40.0 MB)")
    assert "list what the run does not need in .mlwignore" in dry.err
    assert user.runs() == [], "a dry run records nothing"
    assert user.mlw("submit", "train.py", cwd=project).code == 0
    (project / ".mlwignore").write_text("/images/\n/texts/\n")
    assert "MB" not in user.mlw("submit", "--dry-run", "train.py", cwd=project).err


def test_large_outputs_are_kept(user):
    """Complaint: files over 512 MB in outputs were dropped silently."""
    script = "f = open('outputs/weights.bin', 'wb'); f.truncate(600 << 20); f.seek(300 << 20); f.write(b'weights')"
    project = user.project("demo", train=script)
    done = user.mlw("submit", "train.py", cwd=project)
    assert "weights.bin (629 MB)" in done.err
    assert user.mlw("history", "download", done.run, "-d", "got", cwd=project).code == 0
    with open(project / "got" / "weights.bin", "rb") as file:
        file.seek(300 << 20)
        assert file.read(7) == b"weights" and os.fstat(file.fileno()).st_size == 600 << 20


@pytest.mark.parametrize("version", [(2, 7, 10), None])
def test_interpreter_version_is_checked_before_run(user, version):
    """Complaint: a local run used the system's Python 2.7 and failed halfway because it needed 3.5.2."""
    project = user.project("demo", train="print(1)")
    python = user.home / "python"
    if version:
        old = f"import sys; sys.version_info = {version}; sys.version = '2.7.10'; exec(sys.argv.pop(1))"
        python.write_text(f"#!{REAL_PYTHON}\nimport sys\nsys.argv = sys.argv[-2:]\n{old}\n")
    else:
        python.write_text("#!/bin/sh\necho 'not a Python at all'\n")
    python.chmod(0o755)
    configure(project, "local.compute", f"pythonLocation: {python}")
    done = user.mlw("submit", "train.py", cwd=project)
    assert done.code == 78 and str(python) in done.err, done
    assert "require Python 3." in done.err if version else "is not a working Python interpreter" in done.err, done
    assert "hint: set pythonLocation" in done.err
    assert user.runs() == [], "told before anything was recorded"


def test_python_path_is_printed(user):
    """Complaint: a message about a "different python location" did not contain the path."""
    project = user.project("demo", train="import sys; print(sys.executable)")
    used = user.mlw("submit", "train.py", cwd=project).out.strip()
    assert used in user.mlw("project", "show", cwd=project).out
    assert json.loads(user.mlw("history", "last", "-o", "json", cwd=project).out)["python"] == used


def test_clean_reports_sizes_before_deletion(user):
    """Complaint: files of the product filled the disk."""
    project = user.project("demo", train="print(1)")
    run = user.mlw("submit", "train.py", cwd=project).run
    until(lambda: list((user.store / "spares").glob("*")))
    rows = json.loads(user.mlw("experiment", "clean", "-o", "json").out)
    assert sum(row["bytes"] for row in rows) > 0
    assert list((user.store / "spares").iterdir()), "showing removes nothing"
    assert user.mlw("experiment", "clean", "--yes").code == 0
    assert not list((user.store / "spares").iterdir()) and user.folder(run).exists()


def test_cancel_needs_only_run_id(user):
    """Complaint: Ctrl-C did not stop the run, and cancel needed both the run ID and the target."""
    project = user.project("demo", train=TICKING)
    run = user.mlw("submit", "--detach", "train.py", cwd=project).out.strip()
    until(lambda: "tick 1" in user.mlw("logs", run, cwd=project).out)
    assert user.mlw("cancel", run[:-2], cwd=user.home).code == 0, "from anywhere, by a beginning of its id"
    assert user.info(run)["status"] == "Canceled"
    old = user.mlw("submit", "--detach", "train.py", cwd=project).out.strip()
    assert user.mlw("experiment", "cancel", "-r", old, "-t", "local", cwd=project).code == 0, "the old words do, too"


def test_failed_run_shows_cause(user):
    """Complaint: a failed job gave no reason."""
    project = user.project("demo", train="import sys\nprint('loading the data')\nsys.exit('no such bucket')")
    done = user.mlw("submit", "--detach", "train.py", cwd=project)
    run = done.out.strip()
    until(lambda: user.info(run)["status"] == "Failed")
    info = user.mlw("history", "info", run)
    assert "no such bucket" in info.out + info.err and "exit 1" in info.out + info.err
    assert user.mlw("logs", run).out == "loading the data\nno such bucket\n"
    assert user.info(run)["exit_code"] == 1 and "no such bucket" in user.info(run)["cause"]


def test_code_location_is_printed(user):
    """Complaint: it was unclear where the code is copied to."""
    project = user.project("demo", train="import os; print(os.getcwd())")
    done = user.mlw("submit", "train.py", cwd=project)
    place = Path(done.out.strip())
    assert place == user.folder(done.run) / "work"
    open_again = user.mlw("project", "restore", "--run-id", done.run, "--path", "code", cwd=user.home)
    assert open_again.code == 0 and (user.home / "code" / "train.py").exists()


def test_no_network_no_account_no_login(user):
    """Complaint: local runs needed a cloud history, a login, and a network; the login looped."""
    need("unshare")
    project = user.project("demo", train="from mlworkbench import log\nlog('loss', 0.5)")
    alone = ["unshare", "--net", "--map-root-user"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine does not let us leave the network")
    for arguments in (["submit", "train.py"], ["history", "list"], ["history", "last", "-o", "json"]):
        done = subprocess.run(
            [*alone, str(MLW), *arguments], cwd=project, env=user.env, capture_output=True, timeout=60
        )
        assert done.returncode == 0, done
    assert json.loads(done.stdout)["metrics"]["loss"] == 0.5
    for command in ("login", "account"):
        refused = user.mlw(command)
        assert refused.code == 2 and "mlw needs no account" in refused.err


def test_only_traceback_is_from_script(user):
    """Complaint: a failure log ended in a history-service error and a second traceback after the script's own."""
    project = user.project("demo", train="raise ValueError('my own')")
    done = user.mlw("submit", "train.py", cwd=project)
    assert done.code == 1 and (done.out + done.err).count("Traceback") == 1
    assert "ValueError: my own (train.py:1)" in done.err


@pytest.mark.parametrize(
    ("old", "hint"),
    [
        (["execute", "start", "-c", "local", "train.py"], "'execute start' is now 'experiment submit'"),
        (["experiment", "submit", "--runconfig", "local", "train.py"], "--run-configuration"),
        (["history", "list", "--path", "."], "--project"),
        (["computecontext", "list"], "computetarget"),
    ],
)
def test_old_commands_work_with_a_hint(user, old, hint):
    """Complaint: a breaking change of the command line left documentation and samples wrong for months."""
    project = user.project("demo", train="print(1)")
    done = user.mlw(*old, cwd=project)
    assert done.code == 0 and "hint: " in done.err and hint in done.err, done


@pytest.mark.parametrize(
    ("typed", "suggestion"), [("baseImage: x", "baseDockerImage"), ("sharedVolumne: 1", "sharedVolumes")]
)
def test_unknown_keys_are_refused_with_a_suggestion(user, typed, suggestion):
    """Complaint: unknown keys were accepted silently, including typos in the official pages."""
    project = user.project("demo", train="print(1)")
    before = len((project / "aml_config" / "docker.compute").read_text().splitlines())
    configure(project, "docker.compute", typed)
    done = user.mlw("project", "validate", "-o", "json", cwd=project)
    [problem] = json.loads(done.out)
    key = typed.partition(":")[0]
    assert done.code == 1 and problem["line"] == before + 2 and f"unknown key '{key}'" in problem["message"]
    assert f"did you mean '{suggestion}'?" in problem["hint"]
    assert user.mlw("submit", "-c", "docker", "train.py", cwd=project).code == 78 and user.runs() == []


@pytest.mark.parametrize("name", ["docker", "localdocker"])
def test_type_aliases_are_equivalent(user, name):
    """Complaint: configuration pages disagreed on `docker` and `localdocker`."""
    project = user.project("demo", train="print(1)")
    path = project / "aml_config" / "docker.compute"
    path.write_text(path.read_text().replace("type: docker", f"type: {name}"))
    assert user.mlw("project", "validate", cwd=project).code == 0


def test_long_paths_are_uploaded(user):
    """Complaint: files with paths of 260 characters could not be opened."""
    project = user.project("demo", train="print(open('/'.join(['d' * 100] * 6 + ['x'])).read())")
    deep = project / "/".join(["d" * 100] * 6)
    deep.mkdir(parents=True)
    (deep / "x").write_text("far down")
    assert user.mlw("submit", "train.py", cwd=project).out == "far down\n"


def test_log_can_be_followed_repeatedly(user):
    """Complaint: the output of a run stopped after an hour."""
    project = user.project("demo", train=TICKING)
    run = user.mlw("submit", "--detach", "train.py", cwd=project).out.strip()
    for expected in (b"tick 5\n", b"tick 25\n"):
        copy = user.home / "seen"
        with open(copy, "wb") as file:
            follower = user.start("logs", "-f", run, cwd=project, stdout=file, stderr=subprocess.DEVNULL)
        until(lambda copy=copy, expected=expected: expected in copy.read_bytes())
        follower.kill()
        follower.wait()
        assert copy.read_bytes().startswith(b"tick 0\ntick 1\n")
    user.mlw("cancel", run)
    lines = user.mlw("logs", run).out.splitlines()
    assert [line for line in lines if line.startswith("tick")] == [f"tick {n}" for n in range(len(lines))]


@pytest.mark.parametrize("arguments", [["train.py"], ["-m", "train"], ["--", "sh", "-c", "true"]])
def test_every_run_has_its_snapshot(user, arguments):
    """Complaint: no snapshot was taken for some kinds of runs."""
    project = user.project("demo", train="print(1)")
    done = user.mlw("submit", *arguments, cwd=project)
    (project / "train.py").write_text("print(2)")
    assert user.mlw("project", "restore", "--run-id", done.run, "--path", "then", cwd=user.home).code == 0
    assert (user.home / "then" / "train.py").read_text() == "print(1)"


def test_restore_refuses_to_lose_work(user):
    """Complaint: restoring lost work."""
    project = user.project("demo", train="print(1)")
    run = user.mlw("submit", "train.py", cwd=project).run
    (project / "train.py").write_text("a week of work")
    refused = user.mlw("project", "restore", "--run-id", run, "--in-place", cwd=project)
    assert refused.code == 2 and "train.py" in refused.err and "would be lost" in refused.err
    assert (project / "train.py").read_text() == "a week of work"


@pytest.mark.parametrize("git", [True, False])
def test_run_records_git_commit_if_available(user, git):
    """Complaint: only one vendor's git was supported, and it could not be detached."""
    project = user.project("demo", train="print(1)")
    env = {**user.env, "GIT_CONFIG_GLOBAL": os.devnull}
    if git:
        need("git")
        shutil.rmtree(project / ".git", ignore_errors=True)
        for arguments in (["init", "-q", "-b", "mine"], ["add", "-A"]):
            subprocess.run(["git", *arguments], cwd=project, env=env, check=True)
        who = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
        subprocess.run(["git", *who, "commit", "-qm", "first"], cwd=project, env=env, check=True)
        (project / "train.py").write_text("print(2)")
    properties = user.info(user.mlw("submit", "train.py", cwd=project).run)["properties"]
    assert (properties["Branch"], properties["Dirty"]) == (("mine", True) if git else (None, None))
    assert bool(properties["CommitId"]) is git


def test_history_is_stored_in_plain_files(user):
    """Complaint: the run history could not be exported when the product was retired."""
    project = user.project("demo", train="from mlworkbench import log\nlog('loss', 0.5)\nprint('hello')")
    run = user.mlw("submit", "train.py", "--lr", "0.1", cwd=project).run
    folder = user.folder(run)
    assert json.loads((folder / "spec.json").read_text())["entry"]["arguments"] == ["--lr", "0.1"]
    assert (folder / "log").read_text() == "hello\n"
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert events[-1]["kind"] == "finished" and events[-1]["data"]["exit"] == 0
    assert '"loss"' in "".join(path.read_text() for path in (folder / "metrics").iterdir())
    [row] = json.loads(user.mlw("history", "list", "-o", "json", cwd=project).out)
    assert row["run_id"] == run and row["metrics"]["loss"] == 0.5
    with sqlite3.connect(user.store / "history.db") as database:  # any program that reads SQLite works
        assert database.execute("select count(*) from runs").fetchone() == (1,)
    # The run folders are enough to rebuild the history on another machine.
    other = user.home / "elsewhere"
    shutil.copytree(user.store / "runs", other / "runs")
    env = {"MLW_HOME": str(other)}
    assert user.mlw("history", "rebuild", env=env).code == 0
    assert [
        entry["run_id"] for entry in json.loads(user.mlw("history", "list", "--all", "-o", "json", env=env).out)
    ] == [run]


def test_new_project_is_valid(user):
    """Found by a new user: `init` named a script that did not exist."""
    folder = user.home / "mine"
    folder.mkdir()
    first = user.mlw("project", "init", cwd=folder)
    assert first.code == 0 and first.err.endswith("hint: run a script with 'mlw submit SCRIPT'\n"), first
    assert user.mlw("project", "validate", cwd=folder, check=True).err == "no problems found\n"
    assert "#ArgumentVector:\n#  - train.py\n" in (folder / "aml_config" / "local.runconfig").read_text()
    other = user.home / "other"
    other.mkdir()
    (other / "fit.py").write_text("print('fitted')\n")
    assert user.mlw("project", "init", cwd=other).err.endswith("hint: run a script with 'mlw submit fit.py'\n")
    done = user.mlw("submit", cwd=other)
    assert (done.code, done.out) == (0, "fitted\n"), done


def test_data_folder_inside_project_is_not_uploaded(user):
    """Found by a new user: after MLW_HOME was in the project, a submit without that variable uploaded the SSH keys."""
    project = user.project("demo", train="import os\nprint(sorted(os.listdir()))\n")
    inside = project / ".mlw-home"
    assert user.mlw("history", "list", cwd=project, env={"MLW_HOME": str(inside)}).code == 0
    (inside / "targets").mkdir(exist_ok=True)
    (inside / "targets" / "key").write_text("OPENSSH PRIVATE KEY")
    done = user.mlw("submit", "train.py", cwd=project)
    assert done.code == 0 and ".mlw-home" not in done.out, done


def test_mlw_option_after_script_prints_hint(user):
    """Found by a new user: `mlw submit train.py --gpus 1` passes --gpus to the script, which does not support it."""
    project = user.project("demo", train="import sys\nprint(sys.argv[1:])\n")
    done = user.mlw("submit", "train.py", "--gpus", "1", cwd=project)
    assert (done.code, done.out) == (0, "['--gpus', '1']\n")
    assert "hint: --gpus after train.py is passed to the script" in done.err, done
    parser = "import argparse\np = argparse.ArgumentParser()\n"
    (project / "own.py").write_text(f"{parser}p.add_argument('--gpus')\np.parse_args()\n")
    assert "is passed to the script" not in user.mlw("submit", "own.py", "--gpus", "1", cwd=project).err
