"""Hints for missing arguments, unknown options, and empty lists."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import click
import pytest

from mlworkbench.cli import main, render
from mlworkbench.cli.experiment import _active_runs_hint
from mlworkbench.cli.history import _explain_empty_list, list_runs
from mlworkbench.cli.main import _closest_option
from mlworkbench.cli.submit import Presentation, _follow_or_detach, submit
from mlworkbench.errors import error_class
from mlworkbench.history.run_query import Query
from mlworkbench.history.store import History
from tests.unit.cli.test_follow_view import make_run
from tests.unit.history.test_store import paths, spec

NO_FILTERS = dict.fromkeys(("status", "target", "script", "tag", "text", "where"), ()) | {"since": None, "parent": None}


@pytest.mark.parametrize(
    ("command", "typed", "suggestion"),
    [
        (list_runs, "--json", "-o json"),
        (list_runs, "--limt", "--limit"),
        (list_runs, "--config", None),
        (submit, "--config", "-c, --run-configuration"),
        (submit, "--cofig", "-c, --run-configuration"),
    ],
)
def test_the_closest_option_is_suggested(command, typed, suggestion):
    assert _closest_option(click.Context(command), typed) == suggestion


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["history", "show", "nothing", "-o", "json"], "unknown-name"),
        (["history", "show", "nothing", "--output=jsonc"], "unknown-name"),
        (["history", "list", "--nonsense", "-ojson"], "usage"),
        (["history", "list", "--limit", "many", "--output", "json"], "usage"),
        (["history", "show", "nothing"], None),
        (["history", "show", "nothing", "-o", "tsv"], None),
        (["submit", "--nonsense", "train.py", "-o", "json"], None),
    ],
)
def test_errors_are_json_if_the_result_would_be(arguments, code, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLW_HOME", str(tmp_path))
    monkeypatch.setattr(render, "_errors_as_json", False)
    exit_code = main._run(arguments)
    stderr = capsys.readouterr().err
    if code is None:
        assert stderr.startswith("error: ")
        return
    error = json.loads(stderr)["error"]
    assert set(error) == {"code", "message", "hint", "explain"} and error["code"] == code
    assert exit_code == error_class(code).exit_code


def test_a_missing_run_lists_the_active_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    history = History(paths(tmp_path))
    assert _active_runs_hint(history, None) == "list active runs with 'mlw ps'"
    for number in range(7):
        history.add(spec(number))
    hint = _active_runs_hint(history, None)
    assert hint.startswith("active runs: demo-") and hint.endswith(", and 2 more; show them with 'mlw ps'")


def test_an_empty_list_is_explained(tmp_path, capsys):
    history = History(paths(tmp_path))
    _explain_empty_list(history, Query(), NO_FILTERS)
    assert capsys.readouterr().err == "no runs yet\nhint: start one with 'mlw submit SCRIPT'\n"
    _explain_empty_list(history, Query(), {**NO_FILTERS, "status": ("Failed",)})
    assert capsys.readouterr().err == "no runs match\n"
    history.add(spec(0))
    _explain_empty_list(history, Query(), NO_FILTERS)
    assert "--archived" in capsys.readouterr().err


@pytest.mark.parametrize("terminals", [(), ("stdout",), ("stderr",), ("stdout", "stderr")])
def test_a_detached_run_is_printed_once_on_a_terminal(capsys, monkeypatch, terminals):
    run = make_run()
    shown = [getattr(sys, name) for name in terminals]
    monkeypatch.setattr("mlworkbench.cli.render.is_terminal", lambda stream: stream in shown)
    follower = SimpleNamespace(refresh=lambda: run)
    assert _follow_or_detach(follower, Presentation(wait=False, output="table", query=None), {}) == 0
    captured = capsys.readouterr()
    assert captured.out == ("" if len(terminals) == 2 else f"{run.id}\n") and f"mlw logs -f {run.id}" in captured.err
