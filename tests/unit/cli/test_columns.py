"""Column layout of run lists."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlworkbench.cli.columns import dropped_columns_note, fit_columns, select_columns
from mlworkbench.cli.output_formats import display_width, heading, status_color
from mlworkbench.cli.run_tables import show_runs
from mlworkbench.errors import UnknownName, UsageError
from mlworkbench.model import Status
from mlworkbench.report.run_records import LIST_COLUMNS
from tests.unit.cli.test_follow_view import make_run

TITLES = {
    "run_id": "Run ID",
    "status": "Status",
    "start_time_utc": "Started",
    "params.lr": "lr",
    "loss": "loss",
    "arguments": "Arguments",
    "target": "Target",
}


def make_rows(count=3, **extra):
    return [
        {
            "run_id": f"demo-swift-{index}",
            "status": "Completed",
            "start_time_utc": "3 min ago",
            "params.lr": "0.0001234567",
            "loss": 0.5,
            "arguments": "--lr 0.1",
            "target": "local",
            **extra,
        }
        for index in range(count)
    ]


def total_width(fitted):
    cells = [list(fitted.columns.values()), *([str(row[key]) for key in fitted.columns] for row in fitted.rows)]
    return sum(max(map(display_width, column)) for column in zip(*cells, strict=True)) + 3 * (len(fitted.columns) - 1)


def test_values_are_shortened_before_columns_are_dropped():
    given = make_rows()
    given[1]["arguments"] = "--data " + "x" * 500
    fitted = fit_columns(TITLES, given, 100, extras=("params.lr", "loss"))
    assert list(fitted.columns) == list(TITLES) and fitted.dropped == []
    assert fitted.rows[0]["arguments"] == "--lr 0.1", "a long value does not shorten the others"
    assert fitted.rows[1]["arguments"].endswith("…") and fitted.rows[1]["arguments"].startswith("--data xx")
    assert total_width(fitted) <= 100
    assert fitted.rows[0]["params.lr"] == "0.0001234567", "a number is never cut"


@pytest.mark.parametrize("width", [30, 50, 60, 80, 90])
def test_dropped_columns_are_reported(width):
    fitted = fit_columns(TITLES, make_rows(arguments="--data " + "x" * 50), width, extras=("params.lr", "loss"))
    assert {*fitted.columns.values(), *fitted.dropped} == set(TITLES.values())
    assert list(fitted.columns)[:2] == ["run_id", "status"]
    assert len(fitted.columns) == 2 or total_width(fitted) <= width
    if fitted.dropped:
        assert fitted.dropped[0] == "Arguments"
        assert dropped_columns_note(fitted.dropped, choosable=True).startswith("note: columns not shown: Arguments")


def test_a_status_is_not_shortened_and_sparse_parameters_are_dropped_first():
    given = make_rows(status="Failed (exit 3)", **{"params.depth": None})
    given[0]["params.depth"] = "12345678901234567890"
    titles = {**TITLES, "params.depth": "depth"}
    fitted = fit_columns(titles, given, 80, extras=("params.lr", "loss", "params.depth"))
    assert {row["status"] for row in fitted.rows} == {"Failed (exit 3)"} and fitted.dropped[0] == "depth"
    narrow = fit_columns(titles, given, 20, extras=("params.lr", "loss", "params.depth"))
    assert {row["status"] for row in narrow.rows} == {"Failed (exit 3)"} and list(narrow.columns) == [
        "run_id",
        "status",
    ]


def test_without_a_width_nothing_is_shortened():
    given = make_rows(arguments="x" * 300, tags=None)
    fitted = fit_columns({**TITLES, "tags": "Tags"}, given, None)
    assert list(fitted.columns) == list(TITLES) and fitted.rows == given


def test_columns_are_selected_by_key_heading_or_name():
    given = make_rows(**{"params.batch_size": "32"})
    record_keys = ("run_id", "status", "start_time_utc", "arguments", "target", "tags")
    names = "Run ID, started,lr,batch-size,LOSS,tags"
    assert select_columns(names, given, record_keys) == {
        "run_id": "Run ID",
        "start_time_utc": "Started",
        "params.lr": "lr",
        "params.batch_size": "batch_size",
        "loss": "loss",
        "tags": "Tags",
    }
    with pytest.raises(UnknownName, match="unknown column 'lss'"):
        select_columns("lss", given, record_keys)


def test_headings_and_status_colors():
    assert [heading(key) for key in ("run_id", "used_by", "uuid", "CommitId", "status")] == [
        "Run ID",
        "Used by",
        "UUID",
        "CommitId",
        "Status",
    ]
    assert (status_color("Failed (exit 3)"), status_color("Completed", code=True)) == ("red", "32")
    assert status_color("something") == ""


def print_list(capsys, runs, **options):
    show_runs(runs, "table", None, LIST_COLUMNS, **options)
    captured = capsys.readouterr()
    return captured.out.splitlines(), captured.err


def test_a_list_shows_parameters_that_differ(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.setattr("time.time", lambda: 10_000.0)
    runs = [
        make_run(
            number,
            ("--lr", lr, "--epochs", "3"),
            metrics={"loss": 0.25},
            status=Status.COMPLETED,
            started=10_000.0 - 200,
        )
        for number, lr in enumerate(("0.1", "0.01"))
    ]
    lines, err = print_list(capsys, runs)
    assert lines[0].split() == ["Run", "ID", "Status", "Started", "Script", "lr", "loss", "Arguments", "Target"]
    assert "3 min ago" in lines[2] and "0.01" in lines[3] and err == ""
    long = replace(runs[0].spec, entry=replace(runs[0].spec.entry, arguments=("--lr", "0.1", "--text", "x" * 300)))
    lines, _ = print_list(capsys, [replace(runs[0], spec=long), runs[1]])
    assert "Arguments" in lines[0] and all(len(line) <= 90 for line in lines)
    lines, _ = print_list(capsys, runs, only="run_id,lr")
    assert lines[0].split() == ["Run", "ID", "lr"] and len(lines) == 4
    with pytest.raises(UsageError, match="tables only"):
        show_runs(runs, "json", None, LIST_COLUMNS, only="lr")


def test_a_sweep_shows_no_parameter_values_and_its_submission_time(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    run = make_run(0, ("--lr", "{lr}"), status=Status.CANCELED)
    sweep = replace(run, spec=replace(run.spec, sweep={"axes": {"lr": "0.1,0.2"}, "children": []}))
    others = [make_run(number, ("--lr", f"0.{number}"), status=Status.COMPLETED, started=1.0) for number in (1, 2)]
    monkeypatch.setattr("time.time", lambda: run.spec.created + 200)
    lines, _ = print_list(capsys, [sweep, *others], only="run_id,lr,started")
    assert "{lr}" not in lines[2] and "submitted 3 min ago" in lines[2]
    assert "0.1" in lines[3] and "submitted" not in lines[3]
