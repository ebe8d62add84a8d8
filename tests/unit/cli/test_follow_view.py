"""Views of the history: tags, groups, differences, and formatted values."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlworkbench.cli.annotate import _update_tags
from mlworkbench.cli.follow_view import print_summary
from mlworkbench.cli.output_formats import as_grid
from mlworkbench.cli.run_page import format_run
from mlworkbench.cli.run_tables import _attachments
from mlworkbench.history.journal_parsing import strict_json
from mlworkbench.history.nested_runs import children_of
from mlworkbench.history.run_query import Query
from mlworkbench.history.store import History
from mlworkbench.model import Annotations, Compute, Entry, Run, Span, Status
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.report.ranking import Ranking, differing
from mlworkbench.report.run_differences import differences
from mlworkbench.report.run_records import children_ids, record
from mlworkbench.report.value_format import finite, format_value
from tests.unit.history.test_store import paths, spec

LINK = "outputs/ckpt -> ../ckpt: link to a folder"
TAGS = st.lists(st.sampled_from("abcdef"), unique=True)


def make_run(number=0, arguments=(), **facts):
    return Run(spec(number, entry=Entry("script", "train.py", tuple(arguments))), **facts)


def test_uncollected_files_are_not_listed_as_outputs(tmp_path, capsys):
    folder = RunFolder(str(tmp_path))
    kinds = {"a": "link to a folder", "b": "fifo", "c": "broken link", "big": "not hashed", "m.bin": "file"}
    entries = [{"path": name, "size": 1, "sha256": None, "kind": kind} for name, kind in kinds.items()]
    Path(folder.manifest).write_text(json.dumps({"outputs": entries}))
    assert _attachments(folder) == "driver_log,outputs/big,outputs/m.bin"
    print_summary(make_run(status=Status.COMPLETED, outputs=2, output_bytes=2), folder)
    assert f"Outputs:   big (1 B), m.bin (1 B); in {folder.outputs}\n" in capsys.readouterr().err


DOWNLOAD_HINT = "on my_dsvm; download: mlw history download -r demo-00000"


@pytest.mark.parametrize("fetched", [True, False])
def test_the_location_of_outputs_is_shown(tmp_path, capsys, fetched):
    history = History(paths(tmp_path))
    run = replace(make_run(status=Status.COMPLETED, outputs=1, output_bytes=1000, uncollected=1), left_out=(LINK,))
    run = replace(run, spec=replace(run.spec, compute=Compute("my_dsvm", "remote", address="10.0.0.7")))
    folder = history.paths.root.run(run.id)
    Path(folder.path).mkdir(parents=True)
    if fetched:
        Path(folder.fetch_marker).write_text("{}")
    location = f"in {folder.outputs}" if fetched else DOWNLOAD_HINT
    lines = format_run(history, run, 80)
    print_summary(run, folder)
    history.close()
    text = "\n".join(lines)
    assert f"1 file, 1.0 kB, {location}" in text
    summary = capsys.readouterr().err
    assert f"1 file; {location}" in summary
    for output in (text, summary):
        assert (
            LINK in output and "files that were not collected are in ~/.mlw/runs/demo-00000/work on my_dsvm" in output
        )


# -- tags ----------------------------------------------------------------------------------------------


@given(TAGS, TAGS, st.lists(st.tuples(TAGS, TAGS), max_size=4))
def test_tags_are_added_and_removed(given_tags, logged_tags, changes):
    run = replace(make_run(told_tags=dict.fromkeys(logged_tags, "")), spec=spec(0, tags=tuple(given_tags)))
    expected = {*given_tags, *logged_tags}
    for added, removed in changes:
        run = replace(run, noted=_update_tags(run, run.noted, added, removed))
        expected = (expected - set(removed)) | set(added)
        assert set(run.tags) == expected
        assert len(run.tags) == len(expected), "none twice"


# -- differences ---------------------------------------------------------------------------------------


def test_parameters_that_differ():
    runs = [
        make_run(0, ("--lr", "0.1", "--fast")),
        make_run(1, ("--lr", "0.2")),
        make_run(2, ("--lr", "0.1"), params={"x": [1]}),
    ]
    assert differing(runs) == {"lr": ["0.1", "0.2", "0.1"], "fast": ["yes", None, None], "x": [None, None, [1]]}
    assert differing([make_run(0, ("--lr", "0.1")), make_run(1, params={"lr": 0.1})]) == {}, (
        "typed and logged values are equal"
    )


def lock(**packages):
    pip = [{"name": name, "version": version, "url": "x", "sha256": "y"} for name, version in packages.items()]
    conda = [{"name": "python", "version": "3.12.1", "build": "h1"}]
    return {
        "kind": "managed",
        "python": {"source": "conda", "version": "3.12.1"},
        "conda": conda,
        "pip": pip,
        "digest": "d" * 64,
    }


def test_environments_are_compared_by_package(tmp_path):
    runs = [
        Run(spec(0, lock=lock(numpy="1.26.4", pandas="2.2.0", typing_extensions="4"))),
        Run(spec(1, lock=lock(numpy="2.0.0", pandas="2.2.0", torch="2.4"))),
    ]
    facts = differences(paths(tmp_path).root, runs, lines=False)
    assert facts["packages"] == {
        "numpy": ["1.26.4", "2.0.0"],
        "torch": [None, "2.4"],
        "typing-extensions": ["4", None],
    }
    assert "environment.pip" not in facts["properties"] and "environment.python" not in facts["properties"]
    other = [runs[0], Run(spec(2, lock={"kind": "existing", "python": "/usr/bin/python3", "version": "3.11.2"}))]
    facts = differences(paths(tmp_path).root, other, lines=False)
    assert facts["packages"] == {}, "packages of the user's Python are unknown"
    assert facts["properties"]["environment.python"] == ["3.12.1", "/usr/bin/python3"]
    assert facts["packages_unknown"] == [other[1].id]


def test_sweeps_are_compared_by_axes(tmp_path):
    runs = [
        Run(spec(0, sweep={"axes": {"lr": "0.1,0.2"}, "way": "grid", "seed": None})),
        Run(spec(1, sweep={"axes": {"lr": "0.1..0.2"}, "way": "random", "seed": 7})),
    ]
    properties = differences(paths(tmp_path).root, runs, lines=False)["properties"]
    assert properties["sweep"] == ["lr=0.1,0.2", "lr=0.1..0.2"]
    assert (properties["sweep.way"], properties["sweep.seed"]) == (["grid", "random"], [None, 7])


# -- children ------------------------------------------------------------------------------------------


def test_children_on_a_page_are_ranked(tmp_path):
    history = History(paths(tmp_path))
    names = [spec(number).id for number in (1, 2, 3)]
    sweep, _ = history.add(spec(0, sweep={"children": names, "metric": "loss", "goal": "min", "axes": {"lr": "1,2,3"}}))
    for number, loss in ((1, 0.3), (2, 0.1), (3, 0.2)):
        history.add(spec(number, parent=sweep.id, varied={"lr": str(number)}))
        history.update(
            names[number - 1], lambda run, loss=loss: replace(run, metrics={"loss": loss}, status=Status.COMPLETED)
        )
    lines = format_run(history, history.get(sweep.id), 80)
    history.close()
    positions = [next(number for number, line in enumerate(lines) if names[nth - 1] in line) for nth in (2, 3, 1)]
    assert positions == sorted(positions) and lines[positions[0]].endswith("best"), lines


def test_children_of_a_record():
    run = make_run(children={"a" * 32: {"name": "x"}, "b" * 32: {"parent": "a" * 32}, "c" * 32: {"parent": "gone"}})
    assert children_ids(run) == [f"{run.id}.aaaaaaaa", f"{run.id}.cccccccc"], "not those of its children"
    assert children_ids(children_of(run)[0]) is None
    assert children_ids(Run(spec(1, sweep={"children": ["x", "y"]}))) == ["x", "y"]


def test_a_nested_run_that_equals_its_parent_counts_once(tmp_path):
    history = History(paths(tmp_path))
    stored, _ = history.add(spec(0))
    children = {"a" * 32: {"same": True}, "b" * 32: {"metrics": {"accuracy": 0.7}}}
    history.update(
        stored.id, lambda run: replace(run, children=children, metrics={"accuracy": 0.9}, status=Status.COMPLETED)
    )
    runs = history.search(Query())
    assert len(runs) == 3
    best = Ranking("accuracy", "max", "last").find(history, Query(), 2)
    assert [run.metrics["accuracy"] for run in best] == [0.9, 0.7]
    history.close()


def test_best_of_a_series():
    run = make_run(metrics={"loss": 2.0}, spans={"loss": Span(3, 0.5, 4.0, 1.0, None)})
    assert Ranking("loss", "min", "last").value(run) == 2.0
    assert Ranking("loss", "min", "best").value(run) == 0.5
    assert Ranking("loss", "max", "best").value(run) == 4.0
    assert Ranking("loss", "max", "best").row(run)["loss"] == 4.0, "also under the metric's name"
    assert Ranking("status", "max", "last").row(run)["status"] == "Submitting", "record keys are not replaced"


def test_titles_that_differ_only_by_case_are_not_changed():
    grid = as_grid([{"loss": 1, "Loss": 2, "lr": 3}], None)
    assert grid.titles == ["loss", "Loss", "Lr"]


# -- records and pages ---------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.text(min_size=1, max_size=8)


@given(VALUES)
@example([1.0, {"x": math.nan}])
@example(-math.inf)
def test_values_for_programs_are_json(value):
    json.dumps(finite(value), allow_nan=False)
    json.dumps(strict_json(value), allow_nan=False)


@given(VALUES | st.fixed_dictionaries({"long": VALUES, "size": VALUES}))
@example("\x1b[31m\r\n")
@example(["\x9b", "\u2028"])
def test_displayed_values_are_one_safe_line(value):
    text = format_value(value, 30)
    assert len(text.splitlines()) <= 1 and not set("\x1b\x9b") & set(text) and len(text) <= 330


@given(st.dictionaries(NAMES, VALUES, max_size=3), st.dictionaries(NAMES, VALUES, max_size=3), st.text(max_size=20))
@example({"\x1b[2J": 1.0}, {"\x9b": "\x1b\n"}, "\x1b[31m\n\x9b")
def test_a_page_escapes_control_characters(tmp_path_factory, metrics, params, text):
    history = History(paths(tmp_path_factory.mktemp("store")))
    run = make_run(metrics=metrics, params=params, told_tags={text: text}, cause=text, status=Status.FAILED)
    run = replace(
        run, noted=Annotations(text, text), files={text: {"as": text}}, gpu={"line": text, "diagnosis": {"cause": text}}
    )
    lines = format_run(history, run, 80)
    history.close()
    assert lines[0].startswith(run.id)
    assert all(line.isprintable() or not set(line) & {"\x1b", "\n", "\r", "\x9b"} for line in lines)
    json.dumps(strict_json(record(run)), allow_nan=False)
