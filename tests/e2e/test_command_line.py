"""The command line as users of gh, az, and docker expect it."""

from __future__ import annotations

import json

import pytest

from tests.e2e.test_commands import on_terminal
from tests.machines.nvml import FakeGpus

TRAIN = """
import sys
import mlworkbench as mlw
mlw.log("loss", float(sys.argv[2]))
print("trained with", sys.argv[2])
"""


@pytest.fixture
def ran(user):
    """A project with two runs."""
    project = user.project("demo", train=TRAIN)
    return user, project, [user.mlw("submit", "train.py", "--lr", lr, cwd=project).run for lr in ("0.5", "0.25")]


def test_short_command_names(ran):
    user, project, (first, second) = ran
    listed = user.mlw("ls", cwd=project)
    assert listed.code == 0 and first in listed.out and second in listed.out
    assert listed.out.split("\n")[0].startswith("Run ID")
    assert user.mlw("target", "list", cwd=project).out == user.mlw("computetarget", "list", cwd=project).out != ""
    assert user.mlw("-V").out == user.mlw("--version").out
    assert user.mlw("help", "history", "list").out.replace("mlw history list", "x") == user.mlw(
        "history", "list", "--help"
    ).out.replace("mlw history list", "x")
    assert user.mlw("help").out == user.mlw("--help").out
    assert user.mlw("help", "hisory").code == 2


def test_ps_with_nothing_active(ran):
    user, project, _ = ran
    done = user.mlw("ps", cwd=project)
    assert (done.code, done.out) == (0, "")
    assert done.err == "no active runs\nhint: list finished runs with 'mlw ls'\n"
    assert user.mlw("ps", "-o", "json", cwd=project).out == "[]\n"


def test_column_selection_without_terminal(ran):
    user, project, (first, _) = ran
    narrow = user.mlw("ls", cwd=project, env={"COLUMNS": "44"})
    assert all(len(line) <= 44 for line in narrow.out.splitlines())
    assert narrow.err.startswith("note: columns not shown: ")
    some = user.mlw("ls", "--columns", "run_id,lr,loss", cwd=project)
    assert some.out.splitlines()[0].split() == ["Run", "ID", "lr", "loss"]
    assert some.out.splitlines()[-1].split() == [first, "0.5", "0.5"]
    assert user.mlw("ls", "--columns", "lss", cwd=project).code == 66
    assert user.mlw("ls", "--columns", "loss", "-o", "json", cwd=project).code == 2
    [_, record] = json.loads(user.mlw("ls", "-o", "json", cwd=project).out)
    assert record["start_time_utc"].endswith("+00:00"), "programs get timestamps"


def test_status_colors(ran):
    user, project, _ = ran
    shown, _ = on_terminal(user, "ls", project, COLUMNS="100")
    assert "\x1b[32mCompleted" in shown
    for line in ("--no-color ls", "ls --no-color", "show --no-color"):
        shown, code = on_terminal(user, line, project, COLUMNS="100")
        assert code == 0 and "\x1b[32m" not in shown, shown


def test_list_outside_project_shows_all_projects(ran, tmp_path):
    user, project, (first, _) = ran
    note = "note: not in a project; listing the runs of all projects\n"
    outside = user.mlw("history", "list", cwd=user.home)
    assert first in outside.out and outside.err == note
    assert note not in user.mlw("history", "list", cwd=project).err
    other = user.project("other", train="")
    run = user.mlw("submit", "train.py", cwd=other).run
    both = user.mlw("ls", cwd=user.home)
    assert "Project" in both.out.splitlines()[0] and run in both.out and first in both.out
    unknown = user.mlw("show", "nothing-like-it", cwd=other)
    assert unknown.code == 66 and run in unknown.err and first not in unknown.err
    assert "did you mean" in user.mlw("show", run[:-1] + "_", cwd=other).err


def test_status_info_and_last_print_the_same(ran):
    user, project, (_, second) = ran
    commands = (("status", second), ("history", "info", second), ("history", "last"))
    results = [user.mlw(*arguments, cwd=project) for arguments in commands]
    ages = [[line for line in arguments.out.splitlines() if not line.startswith("Submitted ")] for arguments in results]
    assert ages[0] == ages[1] == ages[2]
    assert ages[0][0].split() == ["Run", "ID", second] and ages[0][-1].split() == ["loss", "0.25"]
    records = [json.loads(user.mlw(*arguments, "-o", "json", cwd=project).out) for arguments in commands]
    assert [*records[0]] == [*records[1]] == [*records[2]]


def test_rerun(ran):
    user, project, (first, _) = ran
    again = user.mlw("rerun", first, "--name", "second try", cwd=user.home)
    assert again.code == 0 and again.out == "trained with 0.5\n", again
    assert f"note: rerun of {first}: mlw submit -c local" in again.err
    new = json.loads(user.mlw("show", again.run, "-o", "json", cwd=project).out)
    old = json.loads(user.mlw("show", first, "-o", "json", cwd=project).out)
    same = ("script_name", "arguments", "target", "run_configuration", "project")
    assert [new[key] for key in same] == [old[key] for key in same] and new["name"] == "second try"
    planned = user.mlw("rerun", first, "--dry-run", cwd=project)
    assert json.loads(planned.out)["entry"]["name"] == "train.py"
    detached = user.mlw("rerun", first, "--detach", "-o", "json", cwd=project)
    assert json.loads(detached.out)["arguments"] == ["--lr", "0.5"]
    newest = json.loads(detached.out)["run_id"]
    missing = user.mlw("rerun", cwd=project)
    assert missing.code == 2 and missing.err.startswith("error: no run given\n"), missing
    assert f"hint: rerun the newest run with 'mlw rerun {newest}'" in missing.err


def test_gpu_request_that_no_gpu_satisfies(user, tmp_path):
    project = user.project("demo", train="")
    none = user.mlw("submit", "--gpus", "banana", "train.py", cwd=project)
    assert none.code == 75 and "--gpus banana: " in none.err and user.runs() == [], none
    gpus = FakeGpus(tmp_path)
    gpus.add("GPU-a", name="NVIDIA H200")
    env = {**gpus.env_nvml_only, "PATH": user.env["PATH"]}
    for request in ("banana", "5,"):
        wrong = user.mlw("submit", "--gpus", request, "train.py", cwd=project, env=env)
        assert wrong.code == 2 and "H200" in wrong.err and "mlw gpus" in wrong.err, wrong
    assert user.runs() == []


def test_former_short_forms_print_a_hint(ran):
    user, project, (_, second) = ran
    listed = user.mlw("history", "list", "-n", "1", cwd=project)
    assert second in listed.out and listed.err.startswith("hint: '-n' is now '-L'\n")
    assert len(listed.out.splitlines()) == 3
    assert user.mlw("ls", "-L", "1", cwd=project).err == ""
