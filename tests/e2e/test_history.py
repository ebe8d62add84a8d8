"""The history: lists, queries, rebuilds, damage, and many concurrent processes."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import MLW

LOGS = """
import sys
from mlworkbench import log
from azureml.logging import get_azureml_logger
for step in range(3): log("accuracy", float(sys.argv[1]) + step / 100, step=step)
get_azureml_logger().log("Regularization Rate", 0.01)
open("outputs/model.txt", "w").write(sys.argv[1])
"""


@pytest.fixture
def three_runs(user):
    project = user.project("demo", train=LOGS)
    runs = [user.mlw("submit", "train.py", value, cwd=project).run for value in ("0.5", "0.7", "0.6")]
    return user, project, runs


def test_list_last_and_info(three_runs):
    user, project, runs = three_runs
    table = user.mlw("history", "list", cwd=project)
    lines = table.out.splitlines()
    assert [column for column in lines[0].split() if column in ("Run", "Status", "accuracy")] == [
        "Run",
        "Status",
        "accuracy",
    ]
    assert [run for line in lines for run in runs if run in line] == runs[::-1], "newest first"
    record = json.loads(user.mlw("history", "last", "-o", "json", cwd=project).out)
    assert record["run_id"] == runs[-1]
    assert record["accuracy"] == pytest.approx(0.62)
    assert record["Regularization Rate"] == 0.01
    assert (record["run_number"], record["outputs"]) == (3, 1)
    assert user.info(runs[0])["accuracy"] == pytest.approx(0.52)


def test_queries(three_runs):
    user, project, runs = three_runs
    best = user.mlw("history", "list", "--query", "max_by(@, &accuracy).run_id", "-o", "tsv", cwd=project)
    assert best.out.strip() == runs[1]
    done = user.mlw("history", "list", "--query", "[?status=='Completed'] | length(@)", "-o", "json", cwd=project)
    assert json.loads(done.out) == 3
    tsv = user.mlw("history", "list", "--query", "[].[run_number, exit_code]", "-o", "tsv", cwd=project)
    assert tsv.out == "3\t0\n2\t0\n1\t0\n"


def test_projects_are_listed_separately(three_runs):
    user, project, runs = three_runs
    other = user.project("other", train="print(1)")
    run = user.mlw("submit", "train.py", cwd=other).run
    assert [row["run_id"] for row in json.loads(user.mlw("history", "list", "-o", "json", cwd=other).out)] == [run]
    assert len(user.runs()) == 4


def test_untracked_runs_are_not_listed(user):
    project = user.project("demo", train="print(1)")
    config = project / "aml_config" / "local.runconfig"
    config.write_text(config.read_text().replace("TrackedRun: true", "TrackedRun: false"))
    done = user.mlw("submit", "train.py", cwd=project)
    assert user.runs() == []
    assert user.info(done.run)["hidden"] is True


def test_rebuild_from_run_folders(three_runs):
    user, project, runs = three_runs
    before = user.runs()
    for path in user.store.glob("history.db*"):
        path.unlink()
    assert strip(user.runs()) == strip(before), "the first use makes it anew"
    done = user.mlw("history", "rebuild")
    assert "3 runs" in done.err
    assert strip(user.runs()) == strip(before)


def strip(records):
    return [{key: value for key, value in record.items() if key != "age"} for record in records]


@pytest.mark.parametrize("damage", ["header", "middle", "truncated", "empty", "garbage", "wal"])
def test_damaged_index_is_detected_set_aside_and_rebuilt(three_runs, damage):
    user, project, runs = three_runs
    before = strip(user.runs())
    database = user.store / "history.db"
    content = bytearray(database.read_bytes())
    if damage == "header":
        content[:100] = os.urandom(100)
    elif damage == "middle":
        content[4096:] = os.urandom(len(content) - 4096)
    elif damage == "truncated":
        content = content[: len(content) // 2]
    elif damage == "empty":
        content = bytearray()
    elif damage == "garbage":
        content = bytearray(b"this is not a database " * 500)
    elif damage == "wal":
        (user.store / "history.db-wal").write_bytes(os.urandom(50_000))
    database.write_bytes(bytes(content))
    assert strip(user.runs()) == before
    again = user.mlw("submit", "train.py", "0.9", cwd=project)
    assert again.code == 0, again
    assert len(user.runs()) == 4
    if damage in ("header", "middle", "truncated", "garbage"):
        assert list(user.store.glob("history.db.damaged-*")), "the damaged file is kept"


def test_newer_index_is_refused_and_left_alone(three_runs):
    import apsw

    user, project, runs = three_runs
    connection = apsw.Connection(str(user.store / "history.db"))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    done = user.mlw("history", "list", cwd=project)
    assert done.code == 74
    assert "was written by a newer mlw (version 99" in done.err
    assert not list(user.store.glob("*.damaged*"))


def test_fifty_parallel_processes(user):
    """No user sees "database is locked"."""
    project = user.project("demo", train="print(1)")
    user.mlw("submit", "train.py", cwd=project)
    with ThreadPoolExecutor(50) as pool:
        done = list(pool.map(lambda n: user.mlw("submit", "--detach", "train.py", cwd=project), range(50)))
    assert [result for result in done if result.code != 0] == []
    runs = user.runs()
    assert len({result["run_id"] for result in runs}) == 51
    assert sorted(result["run_number"] for result in runs) == list(range(1, 52))


def test_deleted_run_folder_is_reported(user):
    project = user.project("demo", train="import time; print('up'); time.sleep(1000)")
    run = user.mlw("submit", "--detach", "train.py", cwd=project).run
    pid = user.folder(run) / "started.json"
    from tests.supervisor.conftest import until

    until(pid.exists)
    until(lambda: (user.folder(run) / "log").read_text() == "up\n")  # the run has read its script
    child = json.loads(pid.read_text())["pid"]
    user.folder(run).rename(user.home / "removed")  # renamed, because the supervisor may still write into the folder
    shutil.rmtree(user.home / "removed", ignore_errors=True)
    record = user.info(run)
    assert (record["status"], record["ending"]) == ("Failed", "target lost the run")
    assert user.mlw("logs", run).code == 74
    os.kill(child, 9)


def test_outputs_of_all_file_types(user):
    """Links are not followed, special files are not opened, and unusual names are kept."""
    project = user.project(
        "demo",
        train="import os, socket\nos.chdir('outputs')\nos.makedirs('deep/er')\nopen('deep/er/a', 'w').write('x')\n"
        "os.symlink('/etc/passwd', 'link')\nos.symlink('.', 'loop')\nos.mkfifo('fifo')\n"
        "socket.socket(socket.AF_UNIX).bind('sock')\nopen(b'odd\\xff\\nname', 'w').write('y')\n",
    )
    done = user.mlw("submit", "train.py", cwd=project)
    assert done.code == 0, done
    outputs = json.loads((user.folder(done.run) / "outputs.json").read_text())["outputs"]
    kinds = {output["path"]: output["kind"] for output in outputs}
    assert kinds == {
        "deep/er/a": "file",
        "link": "link that leads out of the working copy",
        "loop": "link",
        "fifo": "fifo",
        "sock": "socket",
        "odd\udcff\nname": "file",
    }
    assert "\nname" not in done.err, "an odd name cannot break the lines"


def test_store_is_private_and_nothing_else_is_written(three_runs):
    """Only the mlw folder is written, and other users cannot read it."""
    user, project, runs = three_runs
    assert sorted(path.name for path in user.home.iterdir()) == ["demo"]
    wide = [
        path
        for path in user.store.rglob("*")
        # Copies of the project keep its modes; the folders around them are private.
        if path.stat().st_mode & 0o077 and not {"work", "tree", "lib"} & set(path.relative_to(user.store).parts)
    ]
    assert wide == []
    assert user.store.stat().st_mode & 0o777 == 0o700


def test_ids_never_clash(user):
    from mlworkbench.history.run_ids import new_id

    ids = [new_id("Démo Projekt!! " + "x" * random.randint(0, 50)) for _ in range(2000)]
    assert len(set(ids)) > 1990
    assert all(len(run_id) <= 50 and set(run_id) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for run_id in ids)


@pytest.mark.parametrize("project", ["demo", "Démo Projekt!!", "x" * 50, "ÄÖ"])
def test_short_id_omits_project_name(project):
    from mlworkbench.history.run_ids import new_id, strip_project

    assert re.fullmatch(r"[a-z]+-[a-z]+-[a-z0-9]{4}", strip_project(new_id(project), project))
    assert strip_project("other-swift-otter-7k2q", project) == "other-swift-otter-7k2q"


def test_help_at_every_level(user):
    for command in (
        [],
        ["project"],
        ["experiment"],
        ["history"],
        ["submit"],
        ["experiment", "cancel"],
        ["history", "info"],
    ):
        done = user.mlw(*command, "--help")
        assert done.code == 0
        assert "Usage: mlw" in done.out
    assert subprocess.run([str(MLW)], env=user.env, capture_output=True).returncode in (0, 2)
