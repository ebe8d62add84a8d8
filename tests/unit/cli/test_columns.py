"""Which columns a list of runs has, and how its values are shortened."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlworkbench.cli.columns import chosen, dropped_line, fit
from mlworkbench.cli.formats import heading, span, state_colour
from mlworkbench.cli.show import show_runs
from mlworkbench.errors import UnknownName, UsageError
from mlworkbench.model import Status
from mlworkbench.report.records import LIST
from tests.unit.test_cli_views import a_run

TITLES = {
    "run_id": "Run ID",
    "status": "Status",
    "start_time_utc": "Started",
    "params.lr": "lr",
    "loss": "loss",
    "arguments": "Arguments",
    "target": "Target",
}


def rows(count=3, **more):
    return [
        {
            "run_id": f"demo-swift-{at}",
            "status": "Completed",
            "start_time_utc": "3 min ago",
            "params.lr": "0.0001234567",
            "loss": 0.5,
            "arguments": "--lr 0.1",
            "target": "local",
            **more,
        }
        for at in range(count)
    ]


def breadth(fitted):
    cells = [list(fitted.columns.values()), *([str(row[key]) for key in fitted.columns] for row in fitted.rows)]
    return sum(max(map(span, column)) for column in zip(*cells, strict=True)) + 3 * (len(fitted.columns) - 1)


def test_values_are_shortened_before_columns_are_dropped():
    given = rows()
    given[1]["arguments"] = "--data " + "x" * 500
    fitted = fit(TITLES, given, 100, extras=("params.lr", "loss"))
    assert list(fitted.columns) == list(TITLES) and fitted.dropped == []
    assert fitted.rows[0]["arguments"] == "--lr 0.1", "one long value takes nothing from the others"
    assert fitted.rows[1]["arguments"].endswith("…") and fitted.rows[1]["arguments"].startswith("--data xx")
    assert breadth(fitted) <= 100
    assert fitted.rows[0]["params.lr"] == "0.0001234567", "a number is never cut"


@pytest.mark.parametrize("width", [30, 50, 60, 80, 90])
def test_what_is_dropped_is_told(width):
    fitted = fit(TITLES, rows(arguments="--data " + "x" * 50), width, extras=("params.lr", "loss"))
    assert {*fitted.columns.values(), *fitted.dropped} == set(TITLES.values())
    assert list(fitted.columns)[:2] == ["run_id", "status"]
    assert len(fitted.columns) == 2 or breadth(fitted) <= width
    if fitted.dropped:
        assert fitted.dropped[0] == "Arguments"
        assert dropped_line(fitted.dropped, choosable=True).startswith("note: columns not shown: Arguments")


def test_a_status_is_not_shortened_and_sparse_parameters_are_dropped_first():
    given = rows(status="Failed (exit 3)", **{"params.depth": None})
    given[0]["params.depth"] = "12345678901234567890"
    titles = {**TITLES, "params.depth": "depth"}
    fitted = fit(titles, given, 80, extras=("params.lr", "loss", "params.depth"))
    assert {row["status"] for row in fitted.rows} == {"Failed (exit 3)"} and fitted.dropped[0] == "depth"
    narrow = fit(titles, given, 20, extras=("params.lr", "loss", "params.depth"))
    assert {row["status"] for row in narrow.rows} == {"Failed (exit 3)"} and list(narrow.columns) == [
        "run_id",
        "status",
    ]


def test_without_a_width_all_is_shown_whole():
    given = rows(arguments="x" * 300, tags=None)
    fitted = fit({**TITLES, "tags": "Tags"}, given, None)
    assert list(fitted.columns) == list(TITLES) and fitted.rows == given


def test_columns_are_chosen_by_key_heading_or_name():
    given = rows(**{"params.batch_size": "32"})
    known = ("run_id", "status", "start_time_utc", "arguments", "target", "tags")
    wanted = "Run ID, started,lr,batch-size,LOSS,tags"
    assert chosen(wanted, given, known) == {
        "run_id": "Run ID",
        "start_time_utc": "Started",
        "params.lr": "lr",
        "params.batch_size": "batch_size",
        "loss": "loss",
        "tags": "Tags",
    }
    with pytest.raises(UnknownName, match="unknown column 'lss'"):
        chosen("lss", given, known)


def test_headings_are_for_people():
    assert [heading(key) for key in ("run_id", "used_by", "uuid", "CommitId", "status")] == [
        "Run ID",
        "Used by",
        "UUID",
        "CommitId",
        "Status",
    ]
    assert (state_colour("Failed (exit 3)"), state_colour("Completed", code=True)) == ("red", "32")
    assert state_colour("something") == ""


def listed(capsys, runs, **more):
    show_runs(runs, "table", None, LIST, **more)
    told = capsys.readouterr()
    return told.out.splitlines(), told.err


def test_a_list_shows_what_distinguishes_runs(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.setattr("time.time", lambda: 10_000.0)
    runs = [
        a_run(
            at, ("--lr", lr, "--epochs", "3"), metrics={"loss": 0.25}, status=Status.COMPLETED, started=10_000.0 - 200
        )
        for at, lr in enumerate(("0.1", "0.01"))
    ]
    lines, err = listed(capsys, runs)
    assert lines[0].split() == ["Run", "ID", "Status", "Started", "Script", "lr", "loss", "Arguments", "Target"]
    assert "3 min ago" in lines[2] and "0.01" in lines[3] and err == ""
    long = replace(runs[0].spec, entry=replace(runs[0].spec.entry, arguments=("--lr", "0.1", "--text", "x" * 300)))
    lines, _ = listed(capsys, [replace(runs[0], spec=long), runs[1]])
    assert "Arguments" in lines[0] and all(len(line) <= 90 for line in lines)
    lines, _ = listed(capsys, runs, only="run_id,lr")
    assert lines[0].split() == ["Run", "ID", "lr"] and len(lines) == 4
    with pytest.raises(UsageError, match="tables only"):
        show_runs(runs, "json", None, LIST, only="lr")


def test_a_sweep_has_no_values_of_its_own_and_may_not_have_started(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    run = a_run(0, ("--lr", "{lr}"), status=Status.CANCELED)
    sweep = replace(run, spec=replace(run.spec, sweep={"axes": {"lr": "0.1,0.2"}, "children": []}))
    others = [a_run(at, ("--lr", f"0.{at}"), status=Status.COMPLETED, started=1.0) for at in (1, 2)]
    monkeypatch.setattr("time.time", lambda: run.spec.created + 200)
    lines, _ = listed(capsys, [sweep, *others], only="run_id,lr,started")
    assert "{lr}" not in lines[2] and "submitted 3 min ago" in lines[2]
    assert "0.1" in lines[3] and "submitted" not in lines[3]
