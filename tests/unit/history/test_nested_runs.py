"""What a script told → the run: parameters, tags, files, runs inside it; and what people wrote on it afterwards."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.history.door import History
from mlworkbench.history.expression import parse
from mlworkbench.history.family import child_id, children_of
from mlworkbench.history.intake import take_in
from mlworkbench.history.parameters import of_run
from mlworkbench.history.query import Query
from mlworkbench.history.rows import Reading
from mlworkbench.model import Entry, Noted, Run, Status
from tests.unit.test_fold import SPEC
from tests.unit.test_history_store import paths, spec

ONE, TWO = "a" * 32, "b" * 32


def lines(*told: dict[str, Any]) -> bytes:
    return b"".join(json.dumps({"t": 10.0 + at, **line}).encode() + b"\n" for at, line in enumerate(told))


def told(kind: str, **data: Any) -> dict[str, Any]:
    return {"k": kind, "d": data}


def taken(*parts: bytes) -> Run:
    return take_in(Run(SPEC), Reading(), {f"metrics/{at}": part for at, part in enumerate(parts)})[0]


def test_a_series_amounts_to_something():
    points = [{"n": "loss", "v": 3.0, "s": 0}, {"n": "loss", "v": "NaN", "f": 1, "s": 1}, {"n": "loss", "v": 1, "s": 7}]
    run = taken(lines(*points))
    assert run.metrics["loss"] == 1
    assert run.spans["loss"] == (3, 1, 3.0, 12.0, 7)


def test_the_latest_by_time_counts_whichever_file_was_read_last():
    early, late = {"n": "loss", "v": 1.0, "t": 1.0}, {"n": "loss", "v": 2.0, "t": 2.0}
    assert taken(lines(early), lines(late)).metrics == taken(lines(late), lines(early)).metrics == {"loss": 2.0}


def test_long_values_are_told_not_held():
    pieces = [{"n": "long", "v": [1] * 5, "of": [[], at, 10]} for at in (0, 5)]
    assert taken(lines(*pieces)).metrics == {"long": {"long": "list", "size": 10}}


def test_numbers_in_lists_are_numbers_again():
    (value,) = taken(lines({"n": "row", "v": [0.5, {"f": "-Infinity"}]})).metrics.values()
    assert value == [0.5, -math.inf]


def test_parameters_of_the_command_line_and_of_the_script():
    given = replace(SPEC, entry=Entry("script", "train.py", ("--batch-size", "32", "--lr", "0.1", "--fast")))
    run = take_in(Run(given), Reading(), {"metrics/1": lines(told("param", name="batch_size", value=64))})[0]
    assert of_run(run) == {"lr": "0.1", "fast": None, "batch_size": 64}


def test_tags_of_submit_script_and_people():
    run = replace(taken(lines(told("tag", name="team", value="vision"), told("tag", name="old", value=""))), spec=SPEC)
    run = replace(run, spec=replace(SPEC, tags=("first", "second")))
    assert run.tags == ("first", "second", "team=vision", "old")
    assert replace(run, noted=Noted(tags=("mine",), untagged=("first", "old"))).tags == (
        "second",
        "team=vision",
        "mine",
    )


def test_a_tag_can_be_taken_back_by_the_script():
    assert taken(lines(told("tag", name="a", value="x"), told("tag", name="a", value=None))).tags == ()


def test_what_mlflow_notes_for_itself_is_no_tag_but_names_the_run():
    run = taken(
        lines(told("tag", name="mlflow.user", value="me"), told("tag", name="mlflow.runName", value="baseline"))
    )
    assert (run.tags, run.name) == ((), "baseline")
    assert replace(run, noted=Noted(name="better")).name == "better"


def test_runs_inside_a_run():
    run = taken(
        lines(
            told("child", run=ONE, parent=None, name="fold 1", status="running", started=5.0),
            told("param", run=ONE, name="depth", value=3),
            told("metric", run=ONE, name="accuracy", value=0.5, step=1),
            told("metric", run=ONE, name="accuracy", value=0.7, step=2),
            told("child", run=TWO, parent=ONE, name="inner", status="running", started=6.0),
            told("child", run=ONE, status="completed", ended=9.0),
        )
    )
    one, two = children_of(run)
    assert (one.id, one.spec.parent, one.name) == (f"{SPEC.id}.{'a' * 8}", SPEC.id, "fold 1")
    assert (one.metrics, one.params, one.status, one.duration) == (
        {"accuracy": 0.7},
        {"depth": 3},
        Status.COMPLETED,
        4.0,
    )
    assert one.spans["accuracy"][:3] == (2, 0.5, 0.7)
    assert (two.spec.parent, two.status) == (one.id, Status.RUNNING)
    assert children_of(replace(run, status=Status.FAILED))[1].status is Status.FAILED, "it ended with its parent"


def test_the_first_of_several_runs_is_the_run_itself():
    first = told("child", run=ONE, parent=None, name="first", same=True)
    run = taken(lines({"n": "loss", "v": 0.5}, first, told("child", run=TWO, parent=ONE, name="second")))
    (two,) = children_of(run)
    assert (two.name, two.spec.parent) == ("second", SPEC.id)


def test_odd_names_of_children_make_sound_ids():
    for name in ("../../etc", "x" * 900, "ü", "A" * 32):
        assert child_id("demo", name).startswith("demo.") and len(child_id("demo", name)) == 13


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list("nvtskdfo")), inner, max_size=4),
    max_leaves=8,
)
KINDS = st.sampled_from(["param", "tag", "file", "row", "ended", "child", "metric", "dataset", "other"])
DATA = st.dictionaries(st.sampled_from(["name", "value", "run", "parent", "path", "as", "row", "status"]), ANYTHING)


@given(st.lists(st.builds(lambda k, d: {"k": k, "d": d}, KINDS, DATA) | ANYTHING, max_size=6))
def test_anything_may_come(content):
    data = b"".join(json.dumps(line).encode() + b"\n" for line in content)
    run, reading = take_in(Run(SPEC), Reading(), {"metrics/1": data})
    assert reading.offsets["metrics/1"] == len(data) if data else True
    for child in children_of(run):
        json.dumps(child.spec.to_json())


@given(st.lists(st.integers(0, 600), max_size=4))
def test_the_same_however_it_is_cut(cuts):
    data = lines(
        *({"n": "loss", "v": float(at), "s": at} for at in range(5)),
        told("param", name="lr", value=0.1),
        told("child", run=ONE, name="one"),
        told("metric", run=ONE, name="loss", value=1.0),
    )
    run, reading = Run(SPEC), Reading()
    for end in (*sorted(cuts), len(data)):
        run, reading = take_in(run, reading, {"metrics/1": data[reading.offsets.get("metrics/1", 0) : end]})
    assert run == taken(data)


# -- in the history ------------------------------------------------------------------------------------


@pytest.fixture
def history(tmp_path: Path):
    store = History(paths(tmp_path))
    yield store
    store.close()


def add(history: History, number: int, *said: dict[str, Any]) -> str:
    one = spec(number)
    history.add(one)
    folder = history.paths.root.run(one.id)
    Path(folder.metrics).mkdir(exist_ok=True)
    Path(folder.metrics, "7-ab").write_bytes(lines(*said))
    history.append(one.id, Reading(), {"metrics/7-ab": lines(*said)})
    return one.id


def found(history: History, text: str) -> list[str]:
    return [run.id for run in history.search(Query(where=parse(text)))]


def test_parameters_spans_and_texts_are_found(history):
    points = [{"n": "loss", "v": value} for value in (0.2, 0.1, 0.4)]
    one = add(history, 1, told("param", name="lr", value=0.01), told("tag", name="team", value="vision"), *points)
    add(history, 2, told("param", name="lr", value=0.5), {"n": "loss", "v": 0.3})
    assert found(history, "lr < 0.1") == found(history, 'tags.team = "vision"') == [one]
    assert found(history, "min.loss <= 0.1") == found(history, "max.loss = 0.4") == [one]
    assert found(history, 'tags ~ "VIS"') == found(history, 'run_id ~ "00001"') == [one]
    assert [run.id for run in history.search(Query(texts=("VISION", "demo")))] == [one]
    assert history.search(Query(texts=("VISION", "nothing"))) == []
    assert [run.id for run in history.search(Query(tags=("team",)))] == [one]


def test_what_a_run_was_given_counts_before_what_it_measured(history):
    one = add(history, 1, told("param", name="lr", value=1), {"n": "lr", "v": 42})
    assert found(history, "lr = 1") == found(history, "metrics.lr = 42") == found(history, "params.lr = 1") == [one]
    assert found(history, "lr = 42") == []


def test_moments_are_compared_as_texts(history):
    one = add(history, 1, {"n": "loss", "v": 1})
    history.note(one, lambda run: replace(run, started=1_700_000_000.0, ended=1_700_000_060.0))
    assert found(history, 'start_time_utc > "2023-11-14"') == found(history, 'end_time_utc ~ "22:14"') == [one]
    assert found(history, 'start_time_utc > "2023-11-15"') == []


def test_a_parameter_that_is_none_is_no_switch(history):
    one = add(history, 1, told("param", name="x", value=None))
    assert of_run(history.get(one))["x"] == "None"


def test_a_run_is_found_by_the_name_that_it_was_given(history):
    one = add(history, 1, {"n": "loss", "v": 1})
    history.annotate(one, lambda noted: replace(noted, name="my baseline"))
    assert history.get("my baseline").id == one


def test_of_those_that_are_alike_the_oldest_can_come_first(history):
    ids = [add(history, number, {"n": "loss", "v": 0.5}) for number in (1, 2, 3)]
    assert [run.id for run in history.search(Query(sort="loss"))] == ids[::-1]
    assert [run.id for run in history.search(Query(sort="loss", descending=True, oldest=True))] == ids


def test_children_are_runs_of_the_history(history):
    said = (
        told("child", run=ONE, parent=None, name="fold 1"),
        told("metric", run=ONE, name="accuracy", value=0.9),
        {"n": "accuracy", "v": 0.8},
    )
    parent = add(history, 1, *said)
    child = f"{parent}.{'a' * 8}"
    assert found(history, "accuracy > 0.85") == [child]
    assert [run.id for run in history.search(Query(parent=parent))] == [child]
    assert [run.id for run in history.search(Query(children=False))] == [parent]
    assert history.get(child).spec.folder == parent
    assert child not in [run.id for run in history.unfinished()]
    before = history.list()
    history.rebuild()
    assert history.list() == before
    history.remove(parent)
    assert history.list() == []


def test_what_people_wrote_is_known_to_an_index_made_anew(history):
    parent = add(history, 1, told("child", run=ONE, parent=None, name="fold 1"))
    child = f"{parent}.{'a' * 8}"
    history.annotate(parent, lambda noted: replace(noted, name="best yet", note="see the curve", archived=True))
    history.annotate(child, lambda noted: replace(noted, tags=("good",)))
    assert history.search(Query(children=False)) == []
    assert [run.name for run in history.search(Query(children=False, archived=True, texts=("CURVE",)))] == ["best yet"]
    before = history.search(Query(hidden=True))
    history.close()
    history.paths.database.unlink()
    assert history.search(Query(hidden=True)) == before
    history.rebuild()
    assert history.search(Query(hidden=True)) == before


def test_more_of_a_run_leaves_alone_what_people_wrote(history):
    parent = add(history, 1, told("child", run=ONE, parent=None, name="fold 1"))
    child = f"{parent}.{'a' * 8}"
    history.annotate(child, lambda noted: replace(noted, tags=("good",)))
    more = lines(told("metric", run=ONE, name="accuracy", value=0.9))
    history.append(parent, history.known(parent)[1], {"metrics/7-ab": more})
    assert (history.get(child).tags, history.get(child).metrics) == (("good",), {"accuracy": 0.9})


@pytest.mark.parametrize("content", ["[]", '{"demo-00001": 3}', '{"demo-00001": {"tags": 3, "name": [1]}}', "{"])
def test_odd_notes_harm_nothing(history, content):
    parent = add(history, 1, {"n": "loss", "v": 1})
    Path(history.paths.root.run(parent).noted).write_text(content)
    history.rebuild()
    assert [run.id for run in history.list()] == [parent]
