"""What the views of the history compute: tags, groups, differences, values in few words."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlworkbench.cli.annotate import _tagged
from mlworkbench.cli.formats import as_grid
from mlworkbench.cli.page import page
from mlworkbench.cli.show import _attachments
from mlworkbench.cli.view import closing
from mlworkbench.errors import UnknownName
from mlworkbench.history.family import children_of
from mlworkbench.history.query import Query
from mlworkbench.history.store import History
from mlworkbench.model import Compute, Entry, Noted, Run, Span, Status
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.report.differences import differences
from mlworkbench.report.groups import groups, value_of
from mlworkbench.report.ranking import Ranking, differing
from mlworkbench.report.records import children_ids, record
from mlworkbench.report.values import finite, shown
from mlworkbench.sweep import suggests
from tests.unit.test_history_store import paths, spec

LINK = "outputs/ckpt -> ../ckpt: link to a folder"
TAGS = st.lists(st.sampled_from("abcdef"), unique=True)


def a_run(number=0, arguments=(), **facts):
    return Run(spec(number, entry=Entry("script", "train.py", tuple(arguments))), **facts)


def test_what_was_not_collected_is_no_output(tmp_path, capsys):
    folder = RunFolder(str(tmp_path))
    kinds = {"a": "link to a folder", "b": "fifo", "c": "broken link", "big": "not hashed", "m.bin": "file"}
    entries = [{"path": name, "size": 1, "sha256": None, "kind": kind} for name, kind in kinds.items()]
    Path(folder.manifest).write_text(json.dumps({"outputs": entries}))
    assert _attachments(folder) == "driver_log,outputs/big,outputs/m.bin"
    closing(a_run(status=Status.COMPLETED, outputs=2, output_bytes=2), folder)
    assert f"Outputs:   big (1 B), m.bin (1 B); in {folder.outputs}\n" in capsys.readouterr().err


FETCH = "on my_dsvm; download: mlw history download -r demo-00000"


@pytest.mark.parametrize("home", [True, False])
def test_outputs_are_said_to_be_where_they_are(tmp_path, capsys, home):
    history = History(paths(tmp_path))
    run = replace(a_run(status=Status.COMPLETED, outputs=1, output_bytes=1000, uncollected=1), left_out=(LINK,))
    run = replace(run, spec=replace(run.spec, compute=Compute("my_dsvm", "remote", address="10.0.0.7")))
    folder = history.paths.root.run(run.id)
    Path(folder.path).mkdir(parents=True)
    if home:
        Path(folder.home).write_text("{}")
    place = f"in {folder.outputs}" if home else FETCH
    lines = page(history, run, 80)
    closing(run, folder)
    history.close()
    text = "\n".join(lines)
    assert f"1 file, 1.0 kB, {place}" in text
    summary = capsys.readouterr().err
    assert f"1 file; {place}" in summary
    for told in (text, summary):
        assert LINK in told and "files that were not collected are in ~/.mlw/runs/demo-00000/work on my_dsvm" in told


# -- tags ----------------------------------------------------------------------------------------------


@given(TAGS, TAGS, st.lists(st.tuples(TAGS, TAGS), max_size=4))
def test_tags_are_what_was_added_less_what_was_taken(given_tags, told, changes):
    run = replace(a_run(told_tags=dict.fromkeys(told, "")), spec=spec(0, tags=tuple(given_tags)))
    expected = {*given_tags, *told}
    for more, less in changes:
        run = replace(run, noted=_tagged(run, run.noted, more, less))
        expected = (expected - set(less)) | set(more)
        assert set(run.tags) == expected
        assert len(run.tags) == len(expected), "none twice"


# -- groups --------------------------------------------------------------------------------------------


def test_what_runs_are_grouped_by():
    run = a_run(0, ("--batch-size", "32", "--fast"), params={"lr": 0.1}, metrics={"loss": 1.0, "lr": 7})
    run = replace(run, noted=Noted(tags=("team=vision", "best", "fold:3")))
    assert value_of(run, "batch_size") == value_of(run, "batch-size") == value_of(run, "params.batch-size") == "32"
    assert (value_of(run, "lr"), value_of(run, "metrics.lr"), value_of(run, "loss")) == (0.1, 7, 1.0)
    assert (value_of(run, "team"), value_of(run, "tags.team"), value_of(run, "tag.fold")) == ("vision", "vision", "3")
    assert (value_of(run, "fast"), value_of(run, "best"), value_of(run, "nothing")) == ("yes", "yes", None)
    assert (value_of(run, "status"), value_of(run, "target")) == ("Submitting", "local")


def test_groups_amount_to_their_metrics():
    runs = [a_run(at, ("--lr", lr), metrics={"loss": loss}) for at, (lr, loss) in enumerate(
        (("0.1", 1.0), ("1e-1", 3.0), ("adam", 2), ("2", math.nan), ("10", math.inf))
    )]  # fmt: skip
    found = groups([*runs, a_run(9)], "lr")
    assert [row["lr"] for row in found] == [0.1, 2, 10, "adam", None]
    assert found[0]["metrics"]["loss"] == {
        "runs": 2,
        "goal": "min",
        "best": 1.0,
        "best_run": runs[0].id,
        "mean": 2.0,
        "deviation": pytest.approx(math.sqrt(2)),
        "least": 1.0,
        "greatest": 3.0,
    }
    assert found[3]["metrics"]["loss"]["deviation"] is None
    assert found[1]["metrics"] == found[2]["metrics"] == found[4]["metrics"] == {}
    huge = groups([a_run(at, ("--lr", "1"), metrics={"x": 1.7e308 * (-1) ** at}) for at in range(3)], "lr")
    json.dumps(huge, allow_nan=False)
    with pytest.raises(UnknownName, match="lr"):
        groups(runs, "lrr")
    assert groups([], "lr") == []


# -- differences ---------------------------------------------------------------------------------------


def test_parameters_that_differ():
    runs = [
        a_run(0, ("--lr", "0.1", "--fast")),
        a_run(1, ("--lr", "0.2")),
        a_run(2, ("--lr", "0.1"), params={"x": [1]}),
    ]
    assert differing(runs) == {"lr": ["0.1", "0.2", "0.1"], "fast": ["yes", None, None], "x": [None, None, [1]]}
    assert differing([a_run(0, ("--lr", "0.1")), a_run(1, params={"lr": 0.1})]) == {}, "typed or logged, it is 0.1"


def lock(**packages):
    made = [{"name": name, "version": version, "url": "x", "sha256": "y"} for name, version in packages.items()]
    conda = [{"name": "python", "version": "3.12.1", "build": "h1"}]
    return {
        "kind": "managed",
        "python": {"source": "conda", "version": "3.12.1"},
        "conda": conda,
        "pip": made,
        "digest": "d" * 64,
    }


def test_environments_package_by_package(tmp_path):
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
    assert facts["packages"] == {}, "what the user's own Python has is not known"
    assert facts["properties"]["environment.python"] == ["3.12.1", "/usr/bin/python3"]
    assert facts["packages_unknown"] == [other[1].id]


def test_sweeps_differ_by_what_they_sweep(tmp_path):
    runs = [
        Run(spec(0, sweep={"axes": {"lr": "0.1,0.2"}, "way": "grid", "seed": None})),
        Run(spec(1, sweep={"axes": {"lr": "0.1..0.2"}, "way": "random", "seed": 7})),
    ]
    found = differences(paths(tmp_path).root, runs, lines=False)["properties"]
    assert found["sweep"] == ["lr=0.1,0.2", "lr=0.1..0.2"]
    assert (found["sweep.way"], found["sweep.seed"]) == (["grid", "random"], [None, 7])


# -- children ------------------------------------------------------------------------------------------


def test_children_of_a_page_in_the_order_of_the_summary(tmp_path):
    history = History(paths(tmp_path))
    names = [spec(at).id for at in (1, 2, 3)]
    sweep, _ = history.add(spec(0, sweep={"children": names, "metric": "loss", "goal": "min", "axes": {"lr": "1,2,3"}}))
    for at, loss in ((1, 0.3), (2, 0.1), (3, 0.2)):
        history.add(spec(at, parent=sweep.id, varied={"lr": str(at)}))
        history.note(
            names[at - 1], lambda run, loss=loss: replace(run, metrics={"loss": loss}, status=Status.COMPLETED)
        )
    lines = page(history, history.get(sweep.id), 80)
    history.close()
    places = [next(at for at, line in enumerate(lines) if names[nth - 1] in line) for nth in (2, 3, 1)]
    assert places == sorted(places) and lines[places[0]].endswith("best"), lines


def test_children_of_a_record():
    run = a_run(children={"a" * 32: {"name": "x"}, "b" * 32: {"parent": "a" * 32}, "c" * 32: {"parent": "gone"}})
    assert children_ids(run) == [f"{run.id}.aaaaaaaa", f"{run.id}.cccccccc"], "not those of its children"
    assert children_ids(children_of(run)[0]) is None
    assert children_ids(Run(spec(1, sweep={"children": ["x", "y"]}))) == ["x", "y"]


def test_a_run_that_is_one_of_several_counts_once(tmp_path):
    history = History(paths(tmp_path))
    stored, _ = history.add(spec(0))
    told = {"a" * 32: {"same": True}, "b" * 32: {"metrics": {"accuracy": 0.7}}}
    history.note(stored.id, lambda run: replace(run, children=told, metrics={"accuracy": 0.9}, status=Status.COMPLETED))
    every = history.search(Query())
    assert not [run.id for run in every if run.id.endswith("aaaaaaaa")] and len(every) == 2
    best = Ranking("accuracy", "max", "last").find(history, Query(), 2)
    assert [run.metrics["accuracy"] for run in best] == [0.9, 0.7]
    history.close()


def test_best_of_a_series():
    run = a_run(metrics={"loss": 2.0}, spans={"loss": Span(3, 0.5, 4.0, 1.0, None)})
    assert Ranking("loss", "min", "last").value(run) == 2.0
    assert Ranking("loss", "min", "best").value(run) == 0.5
    assert Ranking("loss", "max", "best").value(run) == 4.0
    assert Ranking("loss", "max", "best").row(run)["loss"] == 4.0, "under its own name, too"
    assert Ranking("status", "max", "last").row(run)["status"] == "Submitting", "ours are ours"


@pytest.mark.parametrize(("name", "told"), [("accuracy", True), ("val_loss", True), ("width", False)])
def test_whether_a_name_says_which_way_is_better(name, told):
    assert suggests(name) is told


def test_titles_that_differ_by_case_only_stay_as_they_are():
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


@given(VALUES | st.fixed_dictionaries({"long": VALUES, "size": VALUES}))
@example("\x1b[31m\r\n")
@example(["\x9b", "\u2028"])
def test_values_for_people_are_one_harmless_line(value):
    text = shown(value, 30)
    assert len(text.splitlines()) <= 1 and not set("\x1b\x9b") & set(text) and len(text) <= 330


@given(st.dictionaries(NAMES, VALUES, max_size=3), st.dictionaries(NAMES, VALUES, max_size=3), st.text(max_size=20))
@example({"\x1b[2J": 1.0}, {"\x9b": "\x1b\n"}, "\x1b[31m\n\x9b")
def test_a_page_of_anything_is_harmless(tmp_path_factory, metrics, params, text):
    history = History(paths(tmp_path_factory.mktemp("store")))
    run = a_run(metrics=metrics, params=params, told_tags={text: text}, cause=text, status=Status.FAILED)
    run = replace(
        run, noted=Noted(text, text), files={text: {"as": text}}, gpu={"line": text, "diagnosis": {"cause": text}}
    )
    lines = page(history, run, 80)
    history.close()
    assert lines[0].startswith(run.id)
    assert all(line.isprintable() or not set(line) & {"\x1b", "\n", "\r", "\x9b"} for line in lines)
    json.dumps(record(run), allow_nan=False)
