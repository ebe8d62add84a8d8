"""The history in the terminal: train, inspect, find the best run, compare, and clean up."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys

import pytest

from tests.e2e.remote_target import RemoteTarget
from tests.e2e.test_commands import on_terminal
from tests.machines.network import wait_until

TRAIN = """
import argparse
import mlworkbench as mlw
words = argparse.ArgumentParser()
words.add_argument("--lr", type=float)
words.add_argument("--batch-size", type=int, default=32)
lr = words.parse_args().lr
mlw.log_params({"depth": 3, "optimizer": "adam"})
for step in range(100):
    mlw.log("loss", lr + 1 / (step + 1), step=step)
    mlw.log("accuracy", 1 - lr - 0.5 / (step + 1), step=step)
mlw.log("classes", ["cat", "dog"])
mlw.log("gradient", float("nan"))
mlw.log("confusion", [5, 1, 2, 9])
mlw.set_tag("team", "vision")
mlw.log_text("notes", "a text")
mlw.log_table("rows", {"a": [1, 2]})
print("trained")
"""

# The records of MLflow's nested runs, written without MLflow.
NESTED = """
import json, os
import mlworkbench as mlw
mlw.log("accuracy", 0.1)
with open(os.path.join(os.environ["MLW_RUN_FOLDER"], "metrics", "1-00000000000000aa"), "w") as file:
    def tell(kind, time, **data):
        file.write(json.dumps({"k": kind, "t": time, "d": data}) + "\\n")
    for number, name in ((1, "first"), (2, "second")):
        run = "%032x" % (number << 100)
        tell("child", 1000.0, run=run, name=name, started=1000.0)
        tell("param", 1001.0, run=run, name="depth", value=number)
        for step in range(5):
            tell("metric", 1002.0 + step, run=run, name="accuracy", value=number / 10 + step / 100, step=step)
        tell("ended", 1010.0, run=run, status="completed")
print("parent's log")
"""


def submit(user, project, *arguments):
    done = user.mlw("submit", *arguments, cwd=project)
    assert done.code == 0, done
    return done.run


@pytest.fixture
def trained(user):
    """A project with three runs."""
    project = user.project("demo", train=TRAIN)
    return user, project, [submit(user, project, "train.py", "--lr", lr) for lr in ("0.1", "0.3", "0.01")]


def query(user, *arguments, cwd):
    done = user.mlw("history", *arguments, "-o", "json", cwd=cwd)
    assert done.code == 0, done
    return json.loads(done.out, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))


# -- complete workflow ---------------------------------------------------------------------------------


def test_workflow_from_training_to_cleanup(trained):
    user, project, (first, second, third) = trained

    best = user.mlw("history", "best", "--metric", "accuracy", cwd=project)
    assert best.code == 0, best
    assert [run for line in best.out.splitlines() for run in (first, second, third) if run in line] == [
        third,
        first,
        second,
    ]
    assert "0.985" in best.out and " lr " in best.out
    assert "depth" not in best.out, "only parameters that differ"
    assert "highest" in best.err and f"mlw show {third}" in best.err

    page = user.mlw("show", third, cwd=project)
    assert page.code == 0, page
    for text in (third, "Completed", "train.py --lr 0.01", "adam", "team=vision", "▁", "█"):
        assert text in page.out, text
    assert re.search(r"accuracy +100 +0.985 +0.49 +0.985 ", page.out), page.out

    chart = user.mlw("history", "metrics", third, "loss", cwd=project)
    assert chart.code == 0 and len(chart.out.splitlines()) > 8
    assert chart.out.startswith("loss over steps\n 1.01 │") and re.search("[\u2801-\u28ff]", chart.out), chart

    compared = user.mlw("history", "compare", first, second, third, cwd=project)
    assert compared.code == 0
    assert re.search(r"^lr +0.1 +0.3 +0.01$", compared.out, re.MULTILINE), compared.out
    assert "accuracy" in compared.out and compared.out.count("loss") >= 2, "as a number and as curves"

    assert user.mlw("history", "tag", third, "--add", "best", "--add", "for=paper", cwd=project).code == 0
    assert user.mlw("history", "note", third, "the one we keep", cwd=project).code == 0
    assert user.mlw("history", "rename", third, "small steps", cwd=project).code == 0
    assert user.mlw("history", "archive", second, cwd=project).code == 0
    listed = user.mlw("history", "list", cwd=project)
    assert second not in listed.out and "small steps" in listed.out and "best, for=paper" in listed.out
    [match] = query(user, "list", "--text", "KEEP", cwd=project)
    assert (match["name"], match["description"]) == ("small steps", "the one we keep")
    assert match["tags"] == ["team=vision", "best", "for=paper"]

    size = sum(path.lstat().st_blocks * 512 for path in (user.folder(first), *user.folder(first).rglob("*")))
    gone = user.mlw("history", "remove", first, "-y", cwd=project)
    assert gone.code == 0 and not user.folder(first).exists()
    freed = float(re.search(r"freed ([\d.]+) kB", gone.err)[1])
    assert abs(freed - size / 1000) < 30, (gone, size)
    assert user.mlw("history", "rebuild").code == 0
    assert query(user, "list", "--text", "KEEP", cwd=project)[0]["tags"] == ["team=vision", "best", "for=paper"]


# -- list ----------------------------------------------------------------------------------------------


def test_list_grouped_by_parameter(trained):
    user, project, (first, *_) = trained
    submit(user, project, "train.py", "--lr", "0.10")
    groups = query(user, "list", "--group", "lr", cwd=project)
    assert [(group["lr"], group["runs"]) for group in groups] == [(0.01, 1), (0.1, 2), (0.3, 1)]
    accuracy = groups[1]["metrics"]["accuracy"]
    assert accuracy == {
        "runs": 2,
        "goal": "max",
        "best": pytest.approx(0.895),
        "best_run": accuracy["best_run"],
        "mean": pytest.approx(0.895),
        "deviation": pytest.approx(0),
        "least": pytest.approx(0.895),
        "greatest": pytest.approx(0.895),
    }
    assert groups[1]["metrics"]["loss"]["goal"] == "min"
    assert "gradient" not in groups[1]["metrics"], "NaN is no value"
    table = user.mlw("history", "list", "--group", "batch-size", cwd=project)
    assert table.code == 66 and "lr" in table.err, "known names are told"
    table = user.mlw("history", "list", "--group", "tags.team", cwd=project)
    assert re.search(r"vision +4 .*0\.\d+ ± 0\.\d+", table.out), table
    by_status = query(user, "list", "--group", "status", "--where", "lr < 0.2", cwd=project)
    assert [(group["status"], group["runs"]) for group in by_status] == [("Completed", 3)]


def test_show_nested_runs(user):
    project = user.project("demo", train=NESTED)
    parent = submit(user, project, "train.py")
    [listed] = query(user, "list", cwd=project)
    assert listed["run_id"] == parent and len(listed["children"]) == 2
    first, second = listed["children"]
    assert first == f"{parent}.00000000"[: len(parent) + 1] + first.rpartition(".")[2]
    table = user.mlw("history", "list", cwd=project).out
    assert "Children" in table and first not in table
    assert {row["run_id"] for row in query(user, "list", "--children", cwd=project)} == {parent, first, second}
    assert {row["run_id"] for row in query(user, "list", "--parent", parent[:-2], cwd=project)} == {first, second}
    assert [row["run_id"] for row in query(user, "list", "--where", "depth = 2", cwd=project)] == [second]
    child = query(user, "info", second, cwd=project)
    assert (child["parent_run_id"], child["name"], child["params"]) == (parent, "second", {"depth": 2})
    assert child["accuracy"] == pytest.approx(0.24)

    best = query(user, "best", "--metric", "accuracy", cwd=project)
    assert [row["run_id"] for row in best] == [second, first, parent]
    page = user.mlw("show", parent, cwd=project).out
    assert "Children" in page and "second" in page
    assert re.search(rf"{re.escape(second)}.*best", page), page
    page = user.mlw("show", second, cwd=project)
    assert parent in page.out and re.search(r"accuracy +5 +0.24 +0.2 +0.24 ", page.out), page
    points = query(user, "metrics", second, "accuracy", cwd=project)
    assert [(row["step"], row["value"]) for row in points["metrics"]["accuracy"]] == [
        (step, pytest.approx(0.2 + step / 100)) for step in range(5)
    ]
    compared = query(user, "compare", first, second, cwd=project)
    assert compared["parameters"] == {"depth": [1, 2]}

    log = user.mlw("logs", second, cwd=project)
    assert log.out == "parent's log\n" and f"is nested in run {parent}" in log.err
    assert f"is nested in run {parent}" in user.mlw("cancel", second, cwd=project).err
    assert f"is nested in run {parent}" in user.mlw("status", second, cwd=project).err
    alone = user.mlw("history", "remove", second, "-y", cwd=project)
    assert alone.code == 2 and f"mlw history remove {parent}" in alone.err
    assert user.mlw("history", "tag", second, "--add", "nice", cwd=project).code == 0
    assert [row["run_id"] for row in query(user, "list", "--tag", "nice", cwd=project)] == [second]
    assert user.mlw("experiment", "resume", second, cwd=project).code == 2
    assert user.mlw("history", "remove", parent, "-y", cwd=project).code == 0
    assert query(user, "list", "--children", cwd=project) == []


def test_show_children_of_sweep(user):
    project = user.project("demo", train=TRAIN)
    parent = submit(user, project, "train.py", "--sweep", "lr=0.1,0.01")
    [listed] = query(user, "list", cwd=project)
    children = listed["children"]
    assert listed["run_id"] == parent and len(children) == 2
    page = user.mlw("show", parent, cwd=project).out
    assert "sweep over lr=0.1,0.01" in page
    assert re.search(rf"{children[1]} +0.01 +Completed +0.985 +best", page), page
    assert f"part of sweep {parent}" in user.mlw("show", children[0], cwd=project).out
    assert [row["run_id"] for row in query(user, "best", "--metric", "loss", "--parent", parent, cwd=project)] == [
        children[1],
        children[0],
    ]
    groups = query(user, "list", "--group", "lr", cwd=project)
    assert [(row["lr"], row["runs"]) for row in groups] == [(0.01, 1), (0.1, 1)], "the sweep itself is in none"
    assert query(user, "compare", *children, cwd=project)["parameters"] == {"lr": ["0.1", "0.01"]}
    assert user.mlw("history", "archive", parent, cwd=project).code == 0
    assert query(user, "list", "--children", cwd=project) == []
    refused = user.mlw("history", "remove", parent, cwd=project)
    assert refused.code == 2 and "; 2 children: " in refused.err, "said before"
    gone = user.mlw("history", "remove", parent, "-y", cwd=project)
    assert gone.code == 0 and not [row for row in (parent, *children) if user.folder(row).exists()]
    assert query(user, "list", "--children", "--archived", cwd=project) == []


def test_show_detached_sweep(user):
    project = user.project("demo", train=TRAIN + "raise ValueError('no luck')")
    parent = submit(user, project, "--detach", "train.py", "--sweep", "lr=0.1,0.01")
    wait_until(lambda: user.info(parent)["status"] == "Failed", "the sweep ends")
    page = user.mlw("show", parent, cwd=project).out
    assert page.count("Failed (exit 1)") == 3 and "Submitting" not in page, page
    assert "cause: ValueError: no luck" in page
    done = user.mlw("submit", "train.py", "--sweep", "lr=0.1", cwd=project)
    assert f"mlw logs {user.info(done.run)['sweep']['children'][0]}" in done.err, done
    for options in (["--sweep"], ["--sweep", "lr"], ["--sweep", "--lr=0.1,0.2"], ["--sweep", "lr=lin:1..2"]):
        refused = user.mlw("submit", "train.py", *options, cwd=project)
        assert refused.code == 2 and "hint:" in refused.err, refused


def test_show_active_run(user):
    waits = "import os, time\nimport mlworkbench as m\nfor n in range(9): m.log('loss', 1 / (n + 1))\nm.flush()\n"
    waits += f"print('up', flush=True)\nwhile not os.path.exists({str(user.home / 'go')!r}): time.sleep(0.01)\n"
    project = user.project("demo", train=waits)
    run = user.mlw("submit", "--detach", "train.py", cwd=project).out.strip()
    wait_until(lambda: "up" in user.mlw("logs", run, cwd=project).out, "it runs")
    wait_until(lambda: "loss" in user.mlw("show", run, cwd=project).out, "what it measures is seen")
    page = user.mlw("show", run, cwd=project).out
    assert "Running, started" in page and f"mlw cancel {run}" in page and re.search(r"loss +9 +0.111111", page), page
    assert user.mlw("history", "remove", run, "-y", cwd=project).code == 2
    (user.home / "go").touch()
    wait_until(lambda: "Completed" in user.mlw("show", run, cwd=project).out, "it has ended")


def test_show_remote_run(laptop, machine):
    """The metrics of a remote run are stored locally: after its end, the page does not need the machine."""
    remote = RemoteTarget(laptop, machine())
    remote.write("work.py", "import mlworkbench as m\nfor n in range(9): m.log('loss', 1 / (n + 1), step=n)\n")
    run = remote.submit("work.py").run
    remote.host.power_off()
    page = remote.mlw("show", run)
    assert page.code == 0 and re.search(r"loss +9 +0.111111 +0.111111 +1 +█", page.out), page
    assert "on box" in page.out
    gone = remote.mlw("history", "remove", run, "-y")
    assert gone.code == 0 and "mlw experiment clean -t box" in gone.err


def run_directly(user, folder, script="import mlworkbench as mlw\nfor n in range(9): mlw.log('loss', 1 / (n + 1))\n"):
    """Run a script directly, without mlw submit."""
    (folder / "alone.py").write_text(script)
    library = os.path.join(os.path.dirname(__file__), "../../src/mlworkbench/remote/inrun")
    env = {**user.env, "PYTHONPATH": os.path.realpath(library)}
    subprocess.run([sys.executable, "alone.py", "--lr", "0.5"], cwd=folder, env=env, check=True, capture_output=True)


def test_runs_of_scripts_started_without_submit(user):
    project = user.project("demo", train=TRAIN)
    submitted = submit(user, project, "train.py", "--lr", "0.1")
    run_directly(user, project)
    newest = query(user, "list", "--all", cwd=project)[0]
    run = newest["run_id"]
    assert run.startswith("local-") and newest["loss"] == pytest.approx(1 / 9)
    page = user.mlw("show", run, cwd=project)
    assert page.code == 0 and "not submitted" in page.out and "alone.py --lr 0.5" in page.out, page
    for arguments in (("logs", run), ("cancel", run), ("experiment", "resume", run), ("project", "restore", "-r", run)):
        done = user.mlw(*arguments, cwd=project)
        assert done.code == 2 and "not submitted" in done.err, (arguments, done)
        assert "Traceback" not in done.err and done.err.count("\n") == 2, "one sentence and a hint"
    assert "loss" in query(user, "compare", submitted, run, cwd=project)["metrics"]
    assert user.mlw("history", "compare", run, submitted, cwd=project).code == 0
    assert user.mlw("history", "note", run, "-", cwd=project, stdin=None, input=b"from a pipe \xff\n").code == 0
    assert query(user, "info", run, cwd=project)["description"] == "from a pipe \ufffd"
    assert user.mlw("history", "remove", run, "-y", cwd=project).code == 0
    assert [row["run_id"] for row in query(user, "list", "--all", cwd=project)] == [submitted]


# -- best ----------------------------------------------------------------------------------------------


def test_best_uses_direction_of_metric(trained):
    user, project, (first, second, third) = trained

    def best(*arguments):
        return [row["run_id"] for row in query(user, "best", *arguments, cwd=project)]

    assert best("--metric", "loss") == [third, first, second]
    assert best("--metric", "loss", "--goal", "max") == [second, first, third]
    assert best("--metric", "accuracy", "-n", "1", "--where", "lr > 0.05") == [first]
    assert best("--metric", "gradient", "--goal", "max") == [], "NaN is never the best"
    [least] = query(user, "best", "--metric", "accuracy", "--goal", "min", "--by", "best", "-n", "1", cwd=project)
    assert (least["run_id"], least["value"]) == (second, pytest.approx(0.2))
    unknown = user.mlw("history", "best", "--metric", "acuracy", cwd=project)
    assert unknown.code == 66 and "did you mean 'accuracy'" in unknown.err and "loss" in unknown.err
    nobody = user.mlw("history", "best", "--metric", "accuracy", "--where", "lr > 5", cwd=project)
    assert (nobody.code, nobody.out) == (0, "") and "no matching run" in nobody.err


# -- metrics -------------------------------------------------------------------------------------------


def test_metrics_as_json(trained):
    user, project, (first, *_) = trained
    table = user.mlw("history", "metrics", first, cwd=project)
    assert re.search(r"^loss +100 +0.11 +0.11 +1.1 ", table.out, re.MULTILINE), table
    assert re.search(r"^gradient +1 +NaN", table.out, re.MULTILINE), table
    assert re.search(r"^classes .*cat", table.out, re.MULTILINE), table
    metrics = query(user, "metrics", first, cwd=project)
    assert metrics["run_id"] == first and len(metrics["metrics"]["loss"]) == 100
    assert metrics["metrics"]["gradient"][0]["value"] == "NaN"
    assert metrics["metrics"]["classes"][0]["value"] == ["cat", "dog"]
    rows = list(csv.reader(io.StringIO(user.mlw("history", "metrics", first, "loss", "-o", "csv", cwd=project).out)))
    assert rows[0] == ["name", "step", "time", "value"] and len(rows) == 101
    assert rows[100][:2] == ["loss", "99"] and float(rows[100][3]) == pytest.approx(0.11)
    tsv = user.mlw("history", "metrics", first, "loss", "-o", "tsv", cwd=project).out
    assert len(tsv.splitlines()) == 100 and tsv.startswith("loss\t0\t")
    assert query(user, "metrics", first, "--query", "length(metrics.loss)", cwd=project) == 100
    unknown = user.mlw("history", "metrics", first, "lose", cwd=project)
    assert unknown.code == 66 and "did you mean 'loss'" in unknown.err
    narrow = user.mlw("history", "metrics", first, "loss", "--width", "40", cwd=project)
    assert max(map(len, narrow.out.splitlines())) <= 40
    assert user.mlw("history", "metrics", first, "confusion", cwd=project).code == 0, "a list is a curve, too"
    ascii_only = user.mlw("history", "metrics", first, "loss", cwd=project, env={"PYTHONIOENCODING": "ascii"})
    assert ascii_only.code == 0 and ascii_only.out.isascii() and "\\u" not in ascii_only.out


ODD = """
import mlworkbench as mlw
from azureml.core import Run
for value in (9.0, 1.0):
    mlw.log("mixed", value)
mlw.log("mixed", 5.0, step=3)
for value in (-1.0, 3.0):
    mlw.log("same", value, step=0)
for x in range(5):
    Run.get_context().log_row("row", x=x * 10, word="w%d" % x)
mlw.log({"many\\n%d %s" % (number, "x" * 300): 1 for number in range(20)})
"""


def test_points_without_steps_rows_and_unusual_names(user):
    project = user.project("demo", odd=ODD)
    run = submit(user, project, "odd.py")
    page = user.mlw("show", run, cwd=project)
    assert re.search(r"^mixed +3 +5 +1 +9( |$)", page.out, re.MULTILINE), page
    assert re.search(r"^row +5 +x=40, word=w4", page.out, re.MULTILINE), page
    chart = user.mlw("history", "metrics", run, "same", "--log", "--width", "60", cwd=project)
    assert chart.out.startswith("same over points\n") and "values <= 0 are not shown" in chart.out, chart
    assert [point["value"] for point in query(user, "metrics", run, "row.x", cwd=project)["metrics"]["row.x"]] == [
        0, 10, 20, 30, 40,
    ]  # fmt: skip
    column = user.mlw("history", "metrics", run, "row.x", "row.word", cwd=project)
    assert column.out.startswith("row.x over points\n") and "w4" in column.out, column
    unknown = user.mlw("history", "metrics", run, "row.y", cwd=project)
    assert unknown.code == 66 and len(unknown.err) < 3000 and "and 3 more" in unknown.err, unknown
    assert len(unknown.err.splitlines()) <= 2, "a name makes no lines"


# -- compare -------------------------------------------------------------------------------------------


def test_compare_draws_requested_metrics(trained):
    user, project, runs = trained
    plain = user.mlw("history", "compare", *runs, "--no-curves", cwd=project)
    assert "│" not in plain.out and " over " not in plain.out
    compared = user.mlw("history", "compare", *runs, "--metric", "loss", cwd=project)
    assert f"* {runs[0]}   + {runs[1]}" in compared.out, "which curve is whose"
    coloured, _ = on_terminal(user, f"history compare {' '.join(runs)} --metric loss", project, COLUMNS="100")
    assert re.search("\x1b\\[33m[\u2801-\u28ff]", coloured)
    assert len(re.findall(r"^(?:accuracy|loss) over steps", compared.out, re.MULTILINE)) == 1, compared
    unknown = user.mlw("history", "compare", *runs, "--metric", "lose", cwd=project)
    assert unknown.code == 66 and "loss" in unknown.err
    facts = query(user, "compare", *runs, cwd=project)
    assert facts["parameters"] == {"lr": ["0.1", "0.3", "0.01"]}
    assert facts["packages"] == {}


# -- annotations ---------------------------------------------------------------------------------------


def test_add_and_remove_tags(trained):
    user, project, (first, second, _) = trained

    def tags(run):
        return query(user, "info", run, cwd=project)["tags"]

    assert user.mlw("history", "tag", first, second, "--add", "seen", "--remove", "team=vision", cwd=project).code == 0
    assert tags(first) == tags(second) == ["seen"]
    again = user.mlw("history", "tag", first, "--add", "team=vision", "--remove", "seen", cwd=project)
    assert again.code == 0 and tags(first) == ["team=vision"]
    shown = user.mlw("history", "tag", first, cwd=project)
    assert (shown.code, shown.out) == (0, "team=vision\n")
    wrong = user.mlw("history", "tag", first, "--remove", "tema=vision", cwd=project)
    assert wrong.code == 66 and "team=vision" in wrong.err and tags(first) == ["team=vision"]
    user.mlw("history", "tag", first, "--add", "team=a", "--add", "team=b", cwd=project)
    assert tags(first) == ["team=b"], "of a name one, as in set_tag"
    assert user.mlw("history", "tag", first, "--remove", "team", cwd=project).code == 0 and tags(first) == []
    assert "has no tags" in user.mlw("history", "tag", first, cwd=project).err
    assert user.mlw("history", "tag", first, "--add", "a\x1b[31m", cwd=project).code == 2
    assert user.mlw("history", "tag", first, "--add", " ", cwd=project).code == 2


def test_notes_names_and_archive(trained):
    user, project, (first, second, _) = trained
    user.mlw("history", "note", first, "one\ntwo \x1b[31m", cwd=project)
    page = user.mlw("show", first, cwd=project).out
    assert "one\n" in page and "two ^[[31m" in page
    assert user.mlw("history", "note", first, cwd=project).out == "one\ntwo ^[[31m\n"
    assert user.mlw("history", "note", first, "--clear", cwd=project).code == 0
    assert "has no note" in user.mlw("history", "note", first, cwd=project).err
    assert query(user, "info", first, cwd=project)["description"] is None
    user.mlw("history", "rename", first, "mine", cwd=project)
    assert [row["run_id"] for row in query(user, "list", "--where", "name = 'mine'", cwd=project)] == [first]
    assert user.mlw("history", "rename", first, "--clear", cwd=project).code == 0
    assert query(user, "info", first, cwd=project)["name"] is None
    assert user.mlw("history", "archive", first, second, cwd=project).code == 0
    assert len(query(user, "list", cwd=project)) == 1
    assert [row["archived"] for row in query(user, "list", "--archived", cwd=project)] == [False, True, True]
    assert user.mlw("history", "archive", first, "--undo", cwd=project).code == 0
    assert len(query(user, "list", cwd=project)) == 2


def test_remove_lists_files_before_prompt(trained):
    user, project, (first, *_) = trained
    refused = user.mlw("history", "remove", first, cwd=project)
    assert refused.code == 2 and re.search(r"[\d.]+ kB", refused.err), refused
    assert "nothing was deleted" in refused.err
    assert user.folder(first).exists()


# -- show ----------------------------------------------------------------------------------------------


def test_show_failed_run(user):
    project = user.project("demo", train="import json\njson.loads('no')\n")
    failed = user.mlw("submit", "train.py", cwd=project)
    page = user.mlw("history", "show", failed.run, cwd=project)
    assert "Failed (exit 1)" in page.out and "JSONDecodeError" in page.out
    shown, last = query(user, "show", cwd=project), query(user, "last", cwd=project)
    assert {**shown, "age": None} == {**last, "age": None}, "the newest if none is named; the record for programs"


def test_hostile_run_prints_no_terminal_escapes(user):
    hostile = "import mlworkbench as m\n" + "".join(
        f"m.{call}\n"
        for call in (
            "log('\\x1b[31mname', 1.0)",
            "log('\\x1b[31mname', 2.0)",
            "log('text', '\\x1b]0;title\\x07')",
            "log_params({'\\x1b[2J': '\\x1b[2J'})",
            "set_tag('\\x9b31m', '\\u202e')",
            "log_text('evil\\x1b[2J', 'x')",
        )
    )
    project = user.project("demo", train=hostile)
    run = submit(user, project, "train.py", "--\x1b[31mx", "y")
    other = submit(user, project, "train.py", "--\x1b[31mx", "z")
    lines = ["show", f"history metrics {run}", f"history compare {run} {other}", "history best --metric text"]
    lines += ["history list --group script_name", f"history metrics {run} text"]
    for command in lines:
        out, _ = on_terminal(user, command, project, COLUMNS="100", NO_COLOR="1")
        assert not re.search("[\x1b\x07\x9b\u202e]", out), (command, out)
        assert "Traceback" not in out
