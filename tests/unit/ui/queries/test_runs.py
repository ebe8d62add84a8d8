"""Data of the runs pages: lists, columns, filters, comparisons, and resubmission."""

from __future__ import annotations

import math
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import pytest

from mlworkbench.errors import UnknownName, UsageError
from mlworkbench.history import rows as index
from mlworkbench.history.rows import ReadPosition
from mlworkbench.history.store import History
from mlworkbench.history.value_index import ValueWriter
from mlworkbench.model import Compute, Entry, Run, Span, Status
from mlworkbench.resubmit import PreviousRun, find_previous_run, rerun_request, submit_words
from mlworkbench.ui.components.compare_charts import points
from mlworkbench.ui.components.run_filter import View
from mlworkbench.ui.pages.runs import field_error
from mlworkbench.ui.queries import compare as comparing
from mlworkbench.ui.queries import runs
from mlworkbench.ui.queries.runs import RunFilter
from tests.unit.history.test_store import paths, spec

METRICS: dict[int, dict[str, object]] = {
    0: {"loss": 0.5, "accuracy": 0.7},
    1: {"loss": math.nan, "accuracy": 0.9},
    2: {"loss": 0.1, "steps": 2**60},
    3: {},
}


@pytest.fixture
def history(tmp_path):
    store = History(paths(tmp_path))
    statuses = (Status.COMPLETED, Status.FAILED, Status.COMPLETED, Status.RUNNING)
    for at, status in enumerate(statuses):
        entry = Entry("script", "train.py" if at < 3 else "other.py", ("--lr", f"0.{at + 1}", "--fast"))
        run_spec = replace(spec(at), entry=entry, compute=Compute("gpu" if at == 2 else "local", "local"))
        store.add(replace(run_spec, tags=("best",) if at == 1 else (), name="<b>second</b>" if at == 1 else None))
        ended = None if status is Status.RUNNING else 10.0 + at
        spans = {name: Span(3, 0.1, 0.9, 5.0, 2) for name in METRICS[at] if name == "loss"}
        store.update(
            run_spec.id,
            lambda run, at=at, status=status, ended=ended, spans=spans: replace(
                run, status=status, started=5.0, ended=ended, accepted=1.0, metrics=METRICS[at], spans=spans
            ),
        )
    yield store
    store.close()


def ids(page: runs.Page) -> list[str]:
    return [row["id"][-1] for row in page.rows]


def test_list_is_filtered_sorted_and_paged(history):
    assert ids(runs.rows(history, RunFilter())) == ["3", "2", "1", "0"]
    page = runs.rows(history, RunFilter(offset=1, limit=2))
    assert ids(page) == ["2", "1"] and page.total == 4 and page.offset == 1
    assert ids(runs.rows(history, RunFilter(statuses=["Completed"]))) == ["2", "0"]
    assert ids(runs.rows(history, RunFilter(scripts=["other.py"]))) == ["3"]
    assert ids(runs.rows(history, RunFilter(targets=["gpu"]))) == ["2"]
    assert ids(runs.rows(history, RunFilter(tags=["best"]))) == ["1"]
    assert ids(runs.rows(history, RunFilter(text="SECOND train"))) == ["1"]
    assert ids(runs.rows(history, RunFilter(where="loss < 0.3"))) == ["2"]
    assert ids(runs.rows(history, RunFilter(sort="metrics.loss"))) == ["2", "0", "3", "1"]
    assert ids(runs.rows(history, RunFilter(sort="params.lr", descending=True, limit=1))) == ["3"]
    assert ids(runs.rows(history, RunFilter(sort="duration", descending=True))) == ["2", "1", "0", "3"]
    assert runs.rows(history, RunFilter(offset=4)).rows == []
    assert runs.rows(history, RunFilter(project="another")).total == 0


def test_filter_count_is_cached_until_a_write(history, monkeypatch):
    counts = []
    count = runs.run_counts.count
    monkeypatch.setattr(runs.run_counts, "count", lambda *args: (counts.append(1), count(*args))[1])
    for offset in (0, 1, 2):
        assert runs.rows(history, RunFilter(offset=offset, limit=1, sort="duration")).total == 4
    assert len(counts) == 1
    assert runs.rows(history, RunFilter(statuses=["Failed"])).total == 1
    history.add(spec(77))
    assert runs.rows(history, RunFilter()).total == 5


def test_column_values_are_numbers_or_texts(history):
    columns = ("metrics.loss", "metrics.steps", "params.lr", "params.fast", "min.loss", "metrics.none")
    values = {row["id"][-1]: row["values"] for row in runs.rows(history, RunFilter(columns=columns)).rows}
    assert values["0"]["metrics.loss"] == 0.5 and values["1"]["metrics.loss"] == "NaN"
    assert values["2"]["metrics.steps"] == str(2**60), "a browser's numbers are too coarse for it"
    assert values["0"]["params.lr"] == "0.1" and values["0"]["params.fast"] == "true"
    assert values["0"]["min.loss"] == 0.1 and values["3"]["metrics.none"] is None


def test_list_cache_is_invalidated_by_a_write(history):
    def cached_facts() -> tuple[object, ...]:
        run_filter = RunFilter()
        offered = runs.filter_choices(history, None, False, False)
        return (
            "f1" in runs.names(history, run_filter)["metrics"],
            runs.statuses(history, run_filter)["Running"],
            offered.statuses["Running"],
            offered.tags,
            "tags" in runs.default_columns(history, run_filter),
        )

    assert cached_facts() == cached_facts() == (False, 1, 1, {"best": 1}, True)
    history.update("demo-00003", lambda run: replace(run, status=Status.FAILED, metrics={"f1": 0.5}))
    assert cached_facts() == (True, 0, 0, {"best": 1}, True)


def test_invalid_filters_are_reported(history):
    with pytest.raises(UsageError, match="cannot sort"):
        runs.rows(history, RunFilter(sort="; DROP TABLE runs"))
    with pytest.raises(UsageError, match="expected"):
        runs.check(history, RunFilter(where="loss <"))
    with pytest.raises(UsageError, match="invalid age"):
        runs.check(history, RunFilter(since="yesterday"))
    with pytest.raises(UnknownName, match="los.*loss"):
        runs.check(history, RunFilter(where="los < 3"))
    with pytest.raises(UnknownName, match="los.*loss"):
        runs.rows(history, RunFilter(where="los < 3"))
    assert runs.rows(history, RunFilter(where="loss < -3")).total == 0
    runs.check(history, RunFilter(where="loss < 3"))
    with pytest.raises(UnknownName):
        runs.find(history, "nobody")


def test_filter_choices(history):
    names = runs.names(history, RunFilter())
    assert set(names["metrics"][:2]) == {"accuracy", "loss"} and names["metrics"][2:] == ["steps"]
    assert names["params"] == ["lr", "fast"]
    choices = runs.filter_choices(history, None, archived=False, children=True)
    assert choices.scripts == {"train.py": 3, "other.py": 1}
    assert {status: count for status, count in choices.statuses.items() if count} == {
        "Completed": 2,
        "Failed": 1,
        "Running": 1,
    }
    assert choices.tags == {"best": 1} and choices.targets == {"local": 3, "gpu": 1}


def test_jobs(history):
    jobs = runs.jobs(history, None)
    assert [job["id"][-1] for job in jobs.running] == ["3"]
    assert [job["id"][-1] for job in jobs.recent] == ["2", "1", "0"]
    assert runs.jobs(history, "another") == runs.Jobs([], 0, [])


def test_page_decodes_only_its_own_rows(tmp_path):
    """Only the rows of the page are decoded. The test counts them, because measured times would vary."""
    store = History(paths(tmp_path))

    def pour(connection):
        values = ValueWriter(connection)
        for at in range(3000):
            run = Run(spec(at), status=Status.COMPLETED)
            index.bulk_insert(connection, index.encode(run, ReadPosition(), {}), values)
        values.flush()
        index.recount_account(connection)

    store._database.write(pour)
    taken = []
    decode = index.decode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "decode", lambda *args: (taken.append(1), decode(*args))[1])
        page = runs.rows(store, RunFilter(offset=2000, limit=100))
    assert (page.total, len(page.rows), len(taken)) == (3000, 100, 100)
    assert runs.rows(store, RunFilter(limit=100_000)).rows[-1]["id"] == "demo-02500", "no more than a bounded part"
    store.close()


def test_view_round_trip_through_url():
    view = View(
        text="a b",
        where='tags = "x&y"',
        status=("Failed",),
        tag=("team=ä", "x"),
        sort="-metrics.val/loss",
        archived=True,
    )
    address = view.to_address("/runs")
    assert View.from_address(parse_qsl(urlsplit(address).query)) == view
    assert View().to_address("/runs") == "/runs"
    odd = View.from_address([("nothing", "x"), ("children", "yes"), ("text", "x" * 9000), ("sort", "<script>")])
    assert odd.children is False and len(odd.text) == 4000 and odd.sort == "<script>"
    assert len(View.from_address([("column", "x")] * 500).column) == 40


def test_columns_of_a_view():
    keys = [column["key"] for column in View(column=("metrics.loss", "name", "evil", "name")).columns(("status",))]
    assert keys == ["id", "metrics.loss", "name"]
    assert [column["key"] for column in View().columns(("status", "params.lr"))] == ["id", "status", "params.lr"]


def test_default_columns(history):
    """Columns that are empty in all runs are left out; columns that differ come first."""
    columns = runs.default_columns(history, RunFilter(project="p"))
    assert columns[:3] == ("status", "name", "params.lr") and set(columns[3:5]) == {"metrics.loss", "metrics.accuracy"}
    assert columns[5:] == ("metrics.steps", "started", "duration", "script", "target", "arguments", "tags")
    narrowed = runs.default_columns(
        history, RunFilter(project="p", text="nothing", where="loss <", statuses=["Failed"])
    )
    assert narrowed == columns, "a filter does not move the columns"
    history.add(replace(spec(9), project_name="other", project_id="other", entry=Entry("script", "a.py", ("x",))))
    assert runs.default_columns(history, RunFilter())[1] == "project" and "project" not in runs.default_columns(
        history, RunFilter(project="p")
    )
    lone = runs.default_columns(history, RunFilter(project="other"))
    assert lone == ("status", "arguments", "started", "duration", "script", "target")


def test_statuses_are_counted_with_the_filter(history):
    counted = runs.statuses(history, RunFilter(scripts=["train.py"], statuses=["Failed"]))
    assert {word: count for word, count in counted.items() if count} == {"Completed": 2, "Failed": 1}


def test_select_all_is_bounded(history, monkeypatch):
    assert [row["id"][-1] for row in runs.select_all(history, RunFilter(where="loss < 1", sort="metrics.loss"))] == [
        "2",
        "0",
    ]
    monkeypatch.setattr(runs, "MAX_SELECTED", 3)
    selected = runs.select_all(history, RunFilter())
    assert [row["id"][-1] for row in selected] == ["3", "2", "1"] and selected[0]["final"] is False


@pytest.mark.parametrize(
    ("where", "start"),
    [
        ("loss <", "expected a number or a quoted string at position 7, at the end – for example: accuracy > 0.9 and"),
        ("los < 3", "unknown metric, parameter, or key 'los' – did you mean 'loss'? – available: accuracy, "),
    ],
)
def test_invalid_condition_message_fits_the_field(history, where, start):
    with pytest.raises((UsageError, UnknownName)) as caught:
        runs.check(history, RunFilter(where=where))
    message = field_error(caught.value)
    assert message.startswith(start) and "--where" not in message


def test_similar_name_is_suggested(history):
    many = {f"layer/{at}/norm": 1.0 for at in range(60)}
    history.update("demo-00000", lambda run: replace(run, metrics={**many, "validation": 1.0}))
    with pytest.raises(UnknownName) as caught:
        runs.check(history, RunFilter(where="validatoin < 3"))
    assert caught.value.hint == "did you mean 'validation'?"


# -- compare -------------------------------------------------------------------------------------------


def test_comparison_shows_differences(history):
    comparison = comparing.compare(history, ["demo-00000", "demo-00002", "demo-00000"])
    assert comparison.ids == ["demo-00000", "demo-00002"]
    assert comparison.tables["parameters"] == {"lr": ["0.1", "0.3"]}
    assert comparison.tables["metrics"]["loss"] == ["0.5", "0.1"] and comparison.tables["metrics"]["accuracy"] == [
        "0.7",
        "",
    ]
    assert comparison.series == {"loss": ["demo-00000", "demo-00002"]}
    assert comparison.numbers["params.lr"] == [0.1, 0.3] and "metrics.steps" not in comparison.numbers
    assert comparing.varying(comparison.numbers) == ["params.lr", "metrics.loss", "duration"]
    assert set(comparing.suggest_runs(history, comparison.ids)) == {"demo-00001", "demo-00003"}


def test_sweep_comparison_uses_children(history):
    sweep = {"way": "grid", "axes": {"lr": "0.1,0.3"}, "children": ["demo-00000", "gone", "demo-00002"]}
    history.add(replace(spec(8), sweep=sweep))
    name = spec(8).id
    assert comparing.expand_sweeps(history, ["demo-00001", name, "demo-00000"]) == [
        "demo-00001",
        "demo-00000",
        "demo-00002",
    ]
    comparison = comparing.compare(history, [name])
    assert comparison.ids == ["demo-00000", "demo-00002"] and comparison.project == ("p", "/demo")
    assert comparing.compare(history, ["demo-00000", name]).ids == ["demo-00000", name]
    row = runs.rows(history, RunFilter(limit=1)).rows[0]
    assert (row["children"], row["sweep"]) == (3, True)


def test_lines_are_shaded_by_metric(history):
    comparison = comparing.compare(history, ["demo-00000", "demo-00001", "demo-00002"])
    drawn = points(comparison, ["params.lr", "metrics.loss"], "metrics.loss")
    assert [(point["id"], point["shade"]) for point in drawn] == [("demo-00000", 1.0), ("demo-00002", 0.0)]


def test_invalid_comparisons(history):
    with pytest.raises(UsageError, match="cannot compare"):
        comparing.compare(history, [f"x{at}" for at in range(501)])
    with pytest.raises(UnknownName):
        comparing.compare(history, ["demo-00000", "nobody"])
    with pytest.raises(UsageError, match="no runs"):
        comparing.compare(history, [])


# -- resubmission --------------------------------------------------------------------------------------


def test_rerun_uses_arguments_of_the_run(history):
    run = replace(
        history.get("demo-00001"), spec=replace(history.get("demo-00001").spec, gpus="1", given={"SEED": "7"})
    )
    given = PreviousRun(run, None, (), ())  # type: ignore[arg-type]
    options = {"configuration": "local", "script": "train.py", "locked": False, "name": ""}
    arguments = submit_words(rerun_request(given, arguments="--lr 0.5 'a b'", **options))
    assert arguments[-4:] == ["train.py", "--lr", "0.5", "a b"] and "--gpus=1" in arguments
    assert "--env=SEED=7" in arguments
    assert "--locked=demo-00001" in submit_words(rerun_request(given, arguments="", **{**options, "locked": True}))
    with pytest.raises(UsageError, match="quotes|quotation"):
        rerun_request(given, arguments="'a", **options)
    for script in ("", "--target=evil"):
        with pytest.raises(UsageError, match="no script"):
            rerun_request(given, arguments="", **{**options, "script": script})
    with pytest.raises(UsageError, match="no longer in"):
        find_previous_run(history, "demo-00001", [])


def test_sweep_is_resubmitted_as_sweep(history):
    sweep = {"way": "random", "axes": {"lr": "log:0.001..0.1"}, "children": ["a", "b"], "metric": "loss", "goal": "min"}
    run = history.get("demo-00000")
    given = PreviousRun(replace(run, spec=replace(run.spec, sweep=sweep)), None, (), ())  # type: ignore[arg-type]
    arguments = submit_words(
        rerun_request(given, configuration="local", script="train.py", arguments="", locked=False, name="again")
    )
    assert "--sweep=lr=log:0.001..0.1" in arguments and "--random" in arguments and "--max-runs=2" in arguments
    assert "--name=again" in arguments
