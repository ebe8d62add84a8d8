"""Parameters, tags, files, and nested runs recorded by scripts; annotations by users."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.history.expression import parse
from mlworkbench.history.history_api import History
from mlworkbench.history.ingest import ingest_bytes
from mlworkbench.history.nested_runs import child_id, children_of
from mlworkbench.history.parameters import run_parameters
from mlworkbench.history.rows import ReadPosition
from mlworkbench.history.run_query import Query
from mlworkbench.model import Annotations, Entry, Run, Status
from mlworkbench.report.run_records import children_ids, outcome, record
from tests.unit.history.test_run_state import SPEC
from tests.unit.history.test_store import paths, spec

ONE, TWO = "a" * 32, "b" * 32


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps({"t": 10.0 + at, **line}).encode() + b"\n" for at, line in enumerate(records))


def record_line(kind: str, **data: Any) -> dict[str, Any]:
    return {"k": kind, "d": data}


def ingest(*parts: bytes) -> Run:
    return ingest_bytes(Run(SPEC), ReadPosition(), {f"metrics/{at}": part for at, part in enumerate(parts)})[0]


def test_the_summary_of_a_series():
    points = [{"n": "loss", "v": 3.0, "s": 0}, {"n": "loss", "v": "NaN", "f": 1, "s": 1}, {"n": "loss", "v": 1, "s": 7}]
    run = ingest(lines(*points))
    assert run.metrics["loss"] == 1
    assert run.spans["loss"] == (3, 1, 3.0, 12.0, 7)


def test_the_latest_by_time_counts_regardless_of_file_order():
    early, late = {"n": "loss", "v": 1.0, "t": 1.0}, {"n": "loss", "v": 2.0, "t": 2.0}
    assert ingest(lines(early), lines(late)).metrics == ingest(lines(late), lines(early)).metrics == {"loss": 2.0}


def test_long_values_are_summarized():
    pieces = [{"n": "long", "v": [1] * 5, "of": [[], at, 10]} for at in (0, 5)]
    assert ingest(lines(*pieces)).metrics == {"long": {"long": "list", "size": 10}}


def test_encoded_floats_in_lists_are_decoded():
    (value,) = ingest(lines({"n": "row", "v": [0.5, {"f": "-Infinity"}]})).metrics.values()
    assert value == [0.5, -math.inf]


def test_parameters_of_the_command_line_and_of_the_script():
    given = replace(SPEC, entry=Entry("script", "train.py", ("--batch-size", "32", "--lr", "0.1", "--fast")))
    run = ingest_bytes(
        Run(given), ReadPosition(), {"metrics/1": lines(record_line("param", name="batch_size", value=64))}
    )[0]
    assert run_parameters(run) == {"lr": "0.1", "fast": None, "batch_size": 64}


def test_tags_of_submission_script_and_user():
    run = replace(
        ingest(lines(record_line("tag", name="team", value="vision"), record_line("tag", name="old", value=""))),
        spec=SPEC,
    )
    run = replace(run, spec=replace(SPEC, tags=("first", "second")))
    assert run.tags == ("first", "second", "team=vision", "old")
    assert replace(run, noted=Annotations(tags=("mine",), untagged=("first", "old"))).tags == (
        "second",
        "team=vision",
        "mine",
    )


def test_a_script_can_remove_a_tag():
    assert ingest(lines(record_line("tag", name="a", value="x"), record_line("tag", name="a", value=None))).tags == ()


def test_internal_mlflow_tags_are_hidden_but_name_the_run():
    run = ingest(
        lines(
            record_line("tag", name="mlflow.user", value="me"),
            record_line("tag", name="mlflow.runName", value="baseline"),
        )
    )
    assert (run.tags, run.name) == ((), "baseline")
    assert replace(run, noted=Annotations(name="better")).name == "better"


def test_nested_runs():
    run = ingest(
        lines(
            record_line("child", run=ONE, parent=None, name="fold 1", status="running", started=5.0),
            record_line("param", run=ONE, name="depth", value=3),
            record_line("metric", run=ONE, name="accuracy", value=0.5, step=1),
            record_line("metric", run=ONE, name="accuracy", value=0.7, step=2),
            record_line("child", run=TWO, parent=ONE, name="inner", status="running", started=6.0),
            record_line("child", run=ONE, status="completed", ended=9.0),
        )
    )
    first, second = children_of(run)
    assert (first.id, first.spec.parent, first.name) == (f"{SPEC.id}.{'a' * 8}", SPEC.id, "fold 1")
    assert (first.metrics, first.params, first.status, first.duration) == (
        {"accuracy": 0.7},
        {"depth": 3},
        Status.COMPLETED,
        4.0,
    )
    assert first.spans["accuracy"][:3] == (2, 0.5, 0.7)
    assert (second.spec.parent, second.status) == (first.id, Status.RUNNING)
    assert children_of(replace(run, status=Status.FAILED))[1].status is Status.FAILED, "it ended with its parent"


def test_the_first_of_several_runs_has_the_data_of_the_run():
    first = record_line("child", run=ONE, parent=None, name="first", same=True, status="completed", ended=9.0)
    nested = record_line("child", run=TWO, parent=ONE, name="second")
    run = ingest(lines({"n": "loss", "v": 0.5}, nested))
    assert [child.spec.parent for child in children_of(run)] == [SPEC.id], "the first run is the only one"
    run = ingest(lines({"n": "loss", "v": 0.5}, first, nested))
    one, two = children_of(run)
    assert (one.name, one.spec.parent, one.metrics, one.status) == ("first", SPEC.id, {"loss": 0.5}, Status.COMPLETED)
    assert (two.name, two.spec.parent, two.metrics) == ("second", one.id, {})
    assert children_ids(run) == [one.id]


def test_a_deleted_nested_run_is_marked():
    create = record_line("child", run=ONE, name="one", status="failed")
    delete, restore = record_line("child", run=ONE, deleted=True), record_line("child", run=ONE, deleted=False)
    (deleted,) = children_of(ingest(lines(create, delete)))
    assert record(deleted)["detail"] == "deleted" and outcome(deleted) == "Failed (deleted)"
    (restored,) = children_of(ingest(lines(create, delete, restore)))
    assert outcome(restored) == "Failed"


def test_odd_names_of_nested_runs_give_valid_ids():
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
def test_any_lines_are_ingested(content):
    data = b"".join(json.dumps(line).encode() + b"\n" for line in content)
    run, reading = ingest_bytes(Run(SPEC), ReadPosition(), {"metrics/1": data})
    assert reading.offsets["metrics/1"] == len(data) if data else True
    for child in children_of(run):
        json.dumps(child.spec.to_json())


@given(st.lists(st.integers(0, 600), max_size=4))
def test_any_split_gives_the_same_run(cuts):
    data = lines(
        *({"n": "loss", "v": float(at), "s": at} for at in range(5)),
        record_line("param", name="lr", value=0.1),
        record_line("child", run=ONE, name="one"),
        record_line("metric", run=ONE, name="loss", value=1.0),
    )
    run, reading = Run(SPEC), ReadPosition()
    for end in (*sorted(cuts), len(data)):
        run, reading = ingest_bytes(run, reading, {"metrics/1": data[reading.offsets.get("metrics/1", 0) : end]})
    assert run == ingest(data)


# -- nested runs in the history ------------------------------------------------------------------------


@pytest.fixture
def history(tmp_path: Path):
    store = History(paths(tmp_path))
    yield store
    store.close()


def add(history: History, number: int, *records: dict[str, Any]) -> str:
    run_spec = spec(number)
    history.add(run_spec)
    folder = history.paths.root.run(run_spec.id)
    Path(folder.metrics).mkdir(exist_ok=True)
    Path(folder.metrics, "7-ab").write_bytes(lines(*records))
    history.append(run_spec.id, ReadPosition(), {"metrics/7-ab": lines(*records)})
    return run_spec.id


def search(history: History, text: str) -> list[str]:
    return [run.id for run in history.search(Query(where=parse(text)))]


def test_parameters_spans_and_texts_are_found(history):
    points = [{"n": "loss", "v": value} for value in (0.2, 0.1, 0.4)]
    run_id = add(
        history,
        1,
        record_line("param", name="lr", value=0.01),
        record_line("tag", name="team", value="vision"),
        *points,
    )
    add(history, 2, record_line("param", name="lr", value=0.5), {"n": "loss", "v": 0.3})
    assert search(history, "lr < 0.1") == search(history, 'tags.team = "vision"') == [run_id]
    assert search(history, "min.loss <= 0.1") == search(history, "max.loss = 0.4") == [run_id]
    assert search(history, 'tags ~ "VIS"') == search(history, 'run_id ~ "00001"') == [run_id]
    assert [run.id for run in history.search(Query(texts=("VISION", "demo")))] == [run_id]
    assert history.search(Query(texts=("VISION", "nothing"))) == []
    assert [run.id for run in history.search(Query(tags=("team",)))] == [run_id]


def test_parameters_take_precedence_over_metrics(history):
    run_id = add(history, 1, record_line("param", name="lr", value=1), {"n": "lr", "v": 42})
    assert (
        search(history, "lr = 1") == search(history, "metrics.lr = 42") == search(history, "params.lr = 1") == [run_id]
    )
    assert search(history, "lr = 42") == []


def test_times_are_compared_as_texts(history):
    run_id = add(history, 1, {"n": "loss", "v": 1})
    history.update(run_id, lambda run: replace(run, started=1_700_000_000.0, ended=1_700_000_060.0))
    assert search(history, 'start_time_utc > "2023-11-14"') == search(history, 'end_time_utc ~ "22:14"') == [run_id]
    assert search(history, 'start_time_utc > "2023-11-15"') == []


def test_a_parameter_with_value_none_is_not_a_flag(history):
    run_id = add(history, 1, record_line("param", name="x", value=None))
    assert run_parameters(history.get(run_id))["x"] == "None"


def test_a_run_is_found_by_its_name(history):
    run_id = add(history, 1, {"n": "loss", "v": 1})
    history.annotate(run_id, lambda noted: replace(noted, name="my baseline"))
    assert history.get("my baseline").id == run_id


def test_equal_runs_can_be_sorted_oldest_first(history):
    ids = [add(history, number, {"n": "loss", "v": 0.5}) for number in (1, 2, 3)]
    assert [run.id for run in history.search(Query(sort="loss"))] == ids[::-1]
    assert [run.id for run in history.search(Query(sort="loss", descending=True, oldest=True))] == ids


def test_nested_runs_are_in_the_history(history):
    records = (
        record_line("child", run=ONE, parent=None, name="fold 1"),
        record_line("metric", run=ONE, name="accuracy", value=0.9),
        {"n": "accuracy", "v": 0.8},
    )
    parent = add(history, 1, *records)
    child = f"{parent}.{'a' * 8}"
    assert search(history, "accuracy > 0.85") == [child]
    assert [run.id for run in history.search(Query(parent=parent))] == [child]
    assert [run.id for run in history.search(Query(children=False))] == [parent]
    assert history.get(child).spec.folder == parent
    assert child not in [run.id for run in history.unfinished()]
    before = history.list()
    history.rebuild()
    assert history.list() == before
    history.remove(parent)
    assert history.list() == []


def test_annotations_survive_a_rebuilt_index(history):
    parent = add(history, 1, record_line("child", run=ONE, parent=None, name="fold 1"))
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


def test_new_data_keeps_annotations(history):
    parent = add(history, 1, record_line("child", run=ONE, parent=None, name="fold 1"))
    child = f"{parent}.{'a' * 8}"
    history.annotate(child, lambda noted: replace(noted, tags=("good",)))
    more = lines(record_line("metric", run=ONE, name="accuracy", value=0.9))
    history.append(parent, history.load(parent)[1], {"metrics/7-ab": more})
    assert (history.get(child).tags, history.get(child).metrics) == (("good",), {"accuracy": 0.9})


@pytest.mark.parametrize("content", ["[]", '{"demo-00001": 3}', '{"demo-00001": {"tags": 3, "name": [1]}}', "{"])
def test_invalid_annotations_are_ignored(history, content):
    parent = add(history, 1, {"n": "loss", "v": 1})
    Path(history.paths.root.run(parent).annotations).write_text(content)
    history.rebuild()
    assert [run.id for run in history.list()] == [parent]
