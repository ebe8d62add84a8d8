"""What the pages of runs are told: lists, columns, filters, comparisons, what a rerun would do."""

from __future__ import annotations

import math
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import pytest

from mlworkbench.errors import UnknownName, UsageError
from mlworkbench.history import rows as index
from mlworkbench.history.rows import Reading
from mlworkbench.history.store import History
from mlworkbench.model import Compute, Entry, Run, Span, Status
from mlworkbench.resubmit import Again, again, request_again, submit_words
from mlworkbench.ui.answers import compare as comparing
from mlworkbench.ui.answers import runs
from mlworkbench.ui.answers.runs import Wishes
from mlworkbench.ui.pages.runs import in_plain_words
from mlworkbench.ui.parts.comparecharts import points
from mlworkbench.ui.parts.runfilter import View
from tests.unit.test_history_store import paths, spec

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
        one = replace(spec(at), entry=entry, compute=Compute("gpu" if at == 2 else "local", "local"))
        store.add(replace(one, tags=("best",) if at == 1 else (), name="<b>second</b>" if at == 1 else None))
        ended = None if status is Status.RUNNING else 10.0 + at
        spans = {name: Span(3, 0.1, 0.9, 5.0, 2) for name in METRICS[at] if name == "loss"}
        store.note(
            one.id,
            lambda run, at=at, status=status, ended=ended, spans=spans: replace(
                run, status=status, started=5.0, ended=ended, accepted=1.0, metrics=METRICS[at], spans=spans
            ),
        )
    yield store
    store.close()


def ids(page: runs.Page) -> list[str]:
    return [one["id"][-1] for one in page.rows]


def test_a_list_is_narrowed_sorted_and_cut(history):
    assert ids(runs.rows(history, Wishes())) == ["3", "2", "1", "0"]
    page = runs.rows(history, Wishes(offset=1, limit=2))
    assert ids(page) == ["2", "1"] and page.total == 4 and page.offset == 1
    assert ids(runs.rows(history, Wishes(statuses=["Completed"]))) == ["2", "0"]
    assert ids(runs.rows(history, Wishes(scripts=["other.py"]))) == ["3"]
    assert ids(runs.rows(history, Wishes(targets=["gpu"]))) == ["2"]
    assert ids(runs.rows(history, Wishes(tags=["best"]))) == ["1"]
    assert ids(runs.rows(history, Wishes(text="SECOND train"))) == ["1"]
    assert ids(runs.rows(history, Wishes(where="loss < 0.3"))) == ["2"]
    assert ids(runs.rows(history, Wishes(sort="metrics.loss"))) == ["2", "0", "3", "1"]
    assert ids(runs.rows(history, Wishes(sort="params.lr", descending=True, limit=1))) == ["3"]
    assert ids(runs.rows(history, Wishes(sort="duration", descending=True))) == ["2", "1", "0", "3"]
    assert runs.rows(history, Wishes(offset=4)).rows == []
    assert runs.rows(history, Wishes(project="another")).total == 0


def test_a_filter_is_counted_once_until_somebody_writes(history, monkeypatch):
    counts = []
    count = runs.overview.count
    monkeypatch.setattr(runs.overview, "count", lambda *words: (counts.append(1), count(*words))[1])
    for offset in (0, 1, 2):
        assert runs.rows(history, Wishes(offset=offset, limit=1, sort="duration")).total == 4
    assert len(counts) == 1
    assert runs.rows(history, Wishes(statuses=["Failed"])).total == 1
    history.add(spec(77))
    assert runs.rows(history, Wishes()).total == 5


def test_columns_are_numbers_or_words(history):
    columns = ("metrics.loss", "metrics.steps", "params.lr", "params.fast", "min.loss", "metrics.none")
    found = {one["id"][-1]: one["values"] for one in runs.rows(history, Wishes(columns=columns)).rows}
    assert found["0"]["metrics.loss"] == 0.5 and found["1"]["metrics.loss"] == "NaN"
    assert found["2"]["metrics.steps"] == str(2**60), "a browser's numbers are too coarse for it"
    assert found["0"]["params.lr"] == "0.1" and found["0"]["params.fast"] == "true"
    assert found["0"]["min.loss"] == 0.1 and found["3"]["metrics.none"] is None


def test_what_is_remembered_of_a_list_ends_with_a_write(history):
    def told() -> tuple[object, ...]:
        wishes = Wishes()
        offered = runs.offered(history, None, False, False)
        return (
            "f1" in runs.names(history, wishes)["metrics"],
            runs.statuses(history, wishes)["Running"],
            offered.statuses["Running"],
            offered.tags,
            "tags" in runs.usual(history, wishes),
        )

    assert told() == told() == (False, 1, 1, {"best": 1}, True)
    history.note("demo-00003", lambda run: replace(run, status=Status.FAILED, metrics={"f1": 0.5}))
    assert told() == (True, 0, 0, {"best": 1}, True)


def test_what_makes_no_sense_is_said(history):
    with pytest.raises(UsageError, match="cannot sort"):
        runs.rows(history, Wishes(sort="; DROP TABLE runs"))
    with pytest.raises(UsageError, match="expected"):
        runs.check(history, Wishes(where="loss <"))
    with pytest.raises(UsageError, match="invalid age"):
        runs.check(history, Wishes(since="yesterday"))
    with pytest.raises(UnknownName, match="los.*loss"):
        runs.check(history, Wishes(where="los < 3"))
    with pytest.raises(UnknownName, match="los.*loss"):
        runs.rows(history, Wishes(where="los < 3"))
    assert runs.rows(history, Wishes(where="loss < -3")).total == 0
    runs.check(history, Wishes(where="loss < 3"))
    with pytest.raises(UnknownName):
        runs.find(history, "nobody")


def test_what_there_is_to_choose_from(history):
    names = runs.names(history, Wishes())
    assert set(names["metrics"][:2]) == {"accuracy", "loss"} and names["metrics"][2:] == ["steps"]
    assert names["params"] == ["lr", "fast"]
    found = runs.offered(history, None, archived=False, children=True)
    assert found.scripts == {"train.py": 3, "other.py": 1}
    assert {word: count for word, count in found.statuses.items() if count} == {
        "Completed": 2,
        "Failed": 1,
        "Running": 1,
    }
    assert found.tags == {"best": 1} and found.targets == {"local": 3, "gpu": 1}


def test_jobs(history):
    found = runs.jobs(history, None)
    assert [one["id"][-1] for one in found.going] == ["3"]
    assert [one["id"][-1] for one in found.lately] == ["2", "1", "0"]
    assert runs.jobs(history, "another") == runs.Jobs([], 0, [])


def test_a_page_of_many_takes_no_more_than_a_page(tmp_path):
    """Not by a clock: what is read of the bodies, which are the heavy part, are the rows of the page."""
    store = History(paths(tmp_path))

    def pour(connection):
        for at in range(3000):
            index.pour(connection, index.encode(Run(spec(at), status=Status.COMPLETED), Reading(), {}))
        index.start_account(connection)

    store._database.write(pour)
    taken = []
    decode = index.decode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "decode", lambda *words: (taken.append(1), decode(*words))[1])
        page = runs.rows(store, Wishes(offset=2000, limit=100))
    assert (page.total, len(page.rows), len(taken)) == (3000, 100, 100)
    assert runs.rows(store, Wishes(limit=100_000)).rows[-1]["id"] == "demo-02500", "no more than a bounded part"
    store.close()


def test_the_view_is_in_the_address():
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
    keys = [one["key"] for one in View(column=("metrics.loss", "name", "evil", "name")).columns(("status",))]
    assert keys == ["id", "metrics.loss", "name"]
    assert [one["key"] for one in View().columns(("status", "params.lr"))] == ["id", "status", "params.lr"]


def test_what_a_list_shows_by_itself(history):
    """What all of them lack is left out; what differs comes before what is looked at less."""
    found = runs.usual(history, Wishes(project="p"))
    assert found[:3] == ("status", "name", "params.lr") and set(found[3:5]) == {"metrics.loss", "metrics.accuracy"}
    assert found[5:] == ("metrics.steps", "started", "duration", "script", "target", "arguments", "tags")
    narrowed = runs.usual(history, Wishes(project="p", text="nothing", where="loss <", statuses=["Failed"]))
    assert narrowed == found, "a filter does not move the columns"
    history.add(replace(spec(9), project_name="other", project_id="other", entry=Entry("script", "a.py", ("x",))))
    assert runs.usual(history, Wishes())[1] == "project" and "project" not in runs.usual(history, Wishes(project="p"))
    lone = runs.usual(history, Wishes(project="other"))
    assert lone == ("status", "arguments", "started", "duration", "script", "target")


def test_statuses_are_counted_by_the_filter(history):
    counted = runs.statuses(history, Wishes(scripts=["train.py"], statuses=["Failed"]))
    assert {word: count for word, count in counted.items() if count} == {"Completed": 2, "Failed": 1}


def test_all_that_fit_are_chosen_up_to_a_bound(history, monkeypatch):
    assert [one["id"][-1] for one in runs.chosen(history, Wishes(where="loss < 1", sort="metrics.loss"))] == ["2", "0"]
    monkeypatch.setattr(runs, "CHOSEN", 3)
    found = runs.chosen(history, Wishes())
    assert [one["id"][-1] for one in found] == ["3", "2", "1"] and found[0]["final"] is False


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("loss <", "expected a number or a quoted string at position 7, at the end – for example: accuracy > 0.9 and"),
        ("los < 3", "unknown metric, parameter, or key 'los' – did you mean 'loss'? – available: accuracy, "),
    ],
)
def test_a_wrong_condition_is_told_as_a_field_has_it(history, where, words):
    with pytest.raises((UsageError, UnknownName)) as caught:
        runs.check(history, Wishes(where=where))
    told = in_plain_words(caught.value)
    assert told.startswith(words) and "--where" not in told


def test_a_near_name_is_found_among_many(history):
    many = {f"layer/{at}/norm": 1.0 for at in range(60)}
    history.note("demo-00000", lambda run: replace(run, metrics={**many, "validation": 1.0}))
    with pytest.raises(UnknownName) as caught:
        runs.check(history, Wishes(where="validatoin < 3"))
    assert caught.value.hint == "did you mean 'validation'?"


# -- compare -------------------------------------------------------------------------------------------


def test_what_differs(history):
    found = comparing.compare(history, ["demo-00000", "demo-00002", "demo-00000"])
    assert found.ids == ["demo-00000", "demo-00002"]
    assert found.tables["parameters"] == {"lr": ["0.1", "0.3"]}
    assert found.tables["metrics"]["loss"] == ["0.5", "0.1"] and found.tables["metrics"]["accuracy"] == ["0.7", ""]
    assert found.series == {"loss": ["demo-00000", "demo-00002"]}
    assert found.numbers["params.lr"] == [0.1, 0.3] and "metrics.steps" not in found.numbers
    assert comparing.varying(found.numbers) == ["params.lr", "metrics.loss", "duration"]
    assert set(comparing.others(history, found.ids)) == {"demo-00001", "demo-00003"}


def test_a_sweep_is_compared_by_its_children(history):
    sweep = {"way": "grid", "axes": {"lr": "0.1,0.3"}, "children": ["demo-00000", "gone", "demo-00002"]}
    history.add(replace(spec(8), sweep=sweep))
    name = spec(8).id
    assert comparing.meant(history, ["demo-00001", name, "demo-00000"]) == ["demo-00001", "demo-00000", "demo-00002"]
    found = comparing.compare(history, [name])
    assert found.ids == ["demo-00000", "demo-00002"] and found.home == ("p", "/demo")
    assert comparing.compare(history, ["demo-00000", name]).ids == ["demo-00000", name]
    row = runs.rows(history, Wishes(limit=1)).rows[0]
    assert (row["children"], row["sweep"]) == (3, True)


def test_lines_have_a_shade_by_a_metric(history):
    found = comparing.compare(history, ["demo-00000", "demo-00001", "demo-00002"])
    told = points(found, ["params.lr", "metrics.loss"], "metrics.loss")
    assert [(one["id"], one["shade"]) for one in told] == [("demo-00000", 1.0), ("demo-00002", 0.0)]


def test_what_cannot_be_compared(history):
    with pytest.raises(UsageError, match="cannot compare"):
        comparing.compare(history, [f"x{at}" for at in range(501)])
    with pytest.raises(UnknownName):
        comparing.compare(history, ["demo-00000", "nobody"])
    with pytest.raises(UsageError, match="no runs"):
        comparing.compare(history, [])


# -- again ---------------------------------------------------------------------------------------------


def test_a_rerun_has_the_words_of_the_run(history):
    run = replace(
        history.get("demo-00001"), spec=replace(history.get("demo-00001").spec, gpus="1", given={"SEED": "7"})
    )
    given = Again(run, None, (), ())  # type: ignore[arg-type]
    asked = {"configuration": "local", "script": "train.py", "locked": False, "name": ""}
    words = submit_words(request_again(given, arguments="--lr 0.5 'a b'", **asked))
    assert words[-4:] == ["train.py", "--lr", "0.5", "a b"] and "--gpus=1" in words
    assert "--env=SEED=7" in words
    assert "--locked=demo-00001" in submit_words(request_again(given, arguments="", **{**asked, "locked": True}))
    with pytest.raises(UsageError, match="quotes|quotation"):
        request_again(given, arguments="'a", **asked)
    for script in ("", "--target=evil"):
        with pytest.raises(UsageError, match="no script"):
            request_again(given, arguments="", **{**asked, "script": script})
    with pytest.raises(UsageError, match="no longer in"):
        again(history, "demo-00001", [])


def test_a_sweep_is_repeated_as_one(history):
    sweep = {"way": "random", "axes": {"lr": "log:0.001..0.1"}, "children": ["a", "b"], "metric": "loss", "goal": "min"}
    run = history.get("demo-00000")
    given = Again(replace(run, spec=replace(run.spec, sweep=sweep)), None, (), ())  # type: ignore[arg-type]
    words = submit_words(
        request_again(given, configuration="local", script="train.py", arguments="", locked=False, name="again")
    )
    assert "--sweep=lr=log:0.001..0.1" in words and "--random" in words and "--max-runs=2" in words
    assert "--name=again" in words
