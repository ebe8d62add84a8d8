"""``--sweep``: axes, points, command-line options, and the specs of children."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.cli.sweep_options import expand_axes, extract_sweep_options, reject_mistyped
from mlworkbench.errors import UsageError
from mlworkbench.model import Entry, Status
from mlworkbench.remote.shared.sweep_children import merge_spec, spec_difference
from mlworkbench.report.sweep_report import best, ranking_metric
from mlworkbench.sweep_axes import RANDOM, Sweep, entry_of, name_of, plan_sweep, read_axis


def points(*words, **more):
    return list(plan_sweep(Sweep(tuple(read_axis(word) for word in words), **more)).points)


def values(word, **more):
    name = word.partition("=")[0]
    return [point[name] for point in points(word, **more)]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("lr=0.1,0.01,adam", ["0.1", "0.01", "adam"]),
        ("depth=2..5", ["2", "3", "4", "5"]),
        ("depth=-1..1", ["-1", "0", "1"]),
        ("width=16..64..16", ["16", "32", "48", "64"]),
        ("width=1..10..4", ["1", "5", "9"]),
        ("drop=0.1..0.5..0.1", ["0.1", "0.2", "0.3", "0.4", "0.5"]),
        ("lr=1e-3..3e-3..1e-3", ["0.001", "0.002", "0.003"]),
        ("n=1,2,8..10", ["1", "2", "8", "9", "10"]),
        ("a=x", ["x"]),
        ("layers=64\\,32,128", ["64,32", "128"]),
        ("data=../x,a..b", ["../x", "a..b"]),
        ("f=a=b,c=d", ["a=b", "c=d"]),
        ("lr=0.1, 0.2", ["0.1", "0.2"]),
        ("path=s3:a..b,x:1", ["s3:a..b", "x:1"]),
    ],
)
def test_values_of_an_axis(word, expected):
    assert values(word) == expected


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("lr=", "a value is missing"),
        ("lr=0.1,,0.2", "a value is missing"),
        ("lr=0.1,", "a value is missing"),
        ("depth=8..2", "the range ends below its start"),
        ("depth=2..8..0", "step must be above 0"),
        ("depth=2..8..-1", "step must be above 0"),
        ("depth=2..x", "is not a range"),
        ("lr=log:0..1", "two numbers above 0"),
        ("lr=log:1", "is not a range"),
        ("lr=1,1", "duplicate value"),
        ("n=1..3,2", "duplicate value"),
        ("lr=0.1..0.2,0.5", "cannot be part of a list"),
        ("lr=lin:1..2", "lin:1..2 is not a range"),
        ("lr=log10:0.1..1", "is not a range"),
        ("lr=0.1, ", "a value is missing"),
        ("--lr=0.1", "--sweep --lr=0.1 has no values"),
    ],
)
def test_axes_that_mean_nothing(word, words):
    with pytest.raises(UsageError, match=words):
        read_axis(word)


@pytest.mark.parametrize(
    ("words", "more", "said"),
    [
        (["lr=0.1..0.2"], {}, "a grid cannot cover the continuous range lr=0.1..0.2"),
        (["lr=log:0.1..0.2"], {}, "a grid cannot cover"),
        (["lr=0.1..0.2"], {"way": RANDOM, "seed": 1}, "the range lr"),
        (["a=1..2000"], {}, "the sweep has 2000 runs"),
        (["a=1..100", "b=1..100"], {"way": RANDOM, "seed": 1}, "the sweep has 10000 runs"),
        (["a=1,2", "a=3"], {}, "has a twice"),
        (["a=1,2"], {"most": 0}, "--max-runs 0 is out of range"),
        (["a=1,2"], {"most": 5001}, "--max-runs 5001 is out of range"),
    ],
)
def test_sweeps_that_cannot_be(words, more, said):
    with pytest.raises(UsageError, match=said):
        points(*words, **more)


NAMES = st.lists(st.from_regex(r"[a-z][a-z_-]{0,5}", fullmatch=True), min_size=1, max_size=4, unique=True)
WORDS = st.lists(st.from_regex(r"[a-z0-9.]{1,5}", fullmatch=True), min_size=1, max_size=5, unique=True).filter(
    lambda words: not any(".." in word for word in words)
)


@given(st.data())
def test_a_grid_is_every_combination_once_and_the_last_axis_changes_first(data):
    names = data.draw(NAMES)
    lists = [data.draw(WORDS) for _ in names]
    found = points(*(f"{name}={','.join(words)}" for name, words in zip(names, lists, strict=True)))
    assert [tuple(point.values()) for point in found] == list(product(*lists))
    assert all(list(point) == names for point in found)
    most = data.draw(st.integers(1, 20))
    assert points(*(f"{n}={','.join(w)}" for n, w in zip(names, lists, strict=True)), most=most) == found[:most]


@given(st.integers(), st.integers(1, 60), st.integers(1, 6), st.integers(1, 6))
def test_a_draw_of_a_grid_takes_no_point_twice_while_there_are_others(seed, most, first, second):
    words = (f"a=1..{first}", f"b=1..{second}")
    found = points(*words, way=RANDOM, seed=seed, most=most)
    assert found == points(*words, way=RANDOM, seed=seed, most=most)
    every = points(*words)
    assert len(found) == min(most, first * second)
    assert all(point in every for point in found)
    assert len({tuple(point.values()) for point in found}) == len(found)


@given(st.integers(), st.integers(1, 30))
def test_a_draw_from_a_span_stays_in_it(seed, most):
    words = ("lr=log:0.0001..0.1", "drop=0.25..0.5", "units=log:1..1000", "kind=a,b")
    found = points(*words, way=RANDOM, seed=seed, most=most)
    assert found == points(*words, way=RANDOM, seed=seed, most=most)
    assert len(found) == most == len({tuple(point.values()) for point in found})
    for point in found:
        assert 0.0001 <= float(point["lr"]) <= 0.1
        assert 0.25 <= float(point["drop"]) <= 0.5
        assert 1 <= int(point["units"]) <= 1000
        assert point["kind"] in "ab"


def test_a_space_that_is_used_up_gives_what_there_is():
    assert sorted(values("n=log:1..3", way=RANDOM, seed=5, most=50)) == ["1", "2", "3"]


def test_a_huge_space_costs_nothing():
    found = points("a=1..1000000000", "b=1..1000000000", way=RANDOM, seed=1, most=3)
    assert len({tuple(point.values()) for point in found}) == 3
    assert len(points("a=1..1000000000", most=2)) == 2


def test_log_draws_as_many_from_each_decade():
    drawn = [float(value) for value in values("lr=log:0.0001..1", way=RANDOM, seed=3, most=2000)]
    counts = [sum(10.0**-k <= one < 10.0 ** (1 - k) for one in drawn) for k in (1, 2, 3, 4)]
    assert all(400 < count < 600 for count in counts), counts


# -- arguments of a child -----------------------------------------------------------------------------------------


def test_values_go_behind_the_arguments_or_where_their_names_stand():
    entry = Entry("script", "train.py", ("--epochs", "3", "model={kind}-{lr}"))
    made = entry_of(entry, {"lr": "0.1", "depth": "-2", "kind": "{lr}"})
    assert made.arguments == ("--epochs", "3", "model={lr}-0.1", "--depth=-2")
    assert entry_of(replace(entry, arguments=()), {"a": "x y"}).arguments == ("--a", "x y")
    assert name_of({"lr": "0.1", "depth": "2"}) == "lr=0.1 depth=2"


@pytest.mark.parametrize("words", [("--lr", "0.5"), ("--lr=0.5",)])
def test_what_is_swept_cannot_be_given_too(words):
    with pytest.raises(UsageError, match="lr is both swept and passed as --lr"):
        entry_of(Entry("script", "train.py", words), {"lr": "0.1"})
    assert entry_of(Entry("script", "train.py", ("--lr", "{lr}")), {"lr": "0.1"}).arguments == ("--lr", "0.1")


# -- command-line options -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "ours", "rest"),
    [
        (["t.py", "--sweep", "x"], [], ["t.py", "--sweep", "x"]),
        (["t.py", "--sweep"], [], ["t.py", "--sweep"]),
        (["t.py", "--", "--sweep", "a=1"], [], ["t.py", "--", "--sweep", "a=1"]),
        (["t.py", "--sweep", "a=1,2", "b=3"], ["--sweep", "a=1,2", "b=3"], ["t.py"]),
        (
            ["t.py", "--seed", "1", "--sweep", "a=1", "--seed", "2"],
            ["--sweep", "a=1", "--seed", "2"],
            ["t.py", "--seed", "1"],
        ),
        (
            ["t.py", "--sweep", "a=1", "--epochs", "3", "--max-runs=4"],
            ["--sweep", "a=1", "--max-runs=4"],
            ["t.py", "--epochs", "3"],
        ),
        (["t.py", "--sweep=a=1", "--random", "x"], ["--sweep=a=1", "--random"], ["t.py", "x"]),
        (["t.py", "--sweep", "a=1", "--", "--parallel", "2"], ["--sweep", "a=1"], ["t.py", "--", "--parallel", "2"]),
        ([], [], []),
    ],
)
def test_which_words_behind_the_script_are_ours(theirs, ours, rest):
    assert extract_sweep_options(theirs) == (ours, rest)


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        (["t.py", "--sweep"], "--sweep has no values"),
        (["t.py", "--sweep", "lr"], "--sweep lr has no values"),
        (["t.py", "--sweep", "lr", "=0.1"], "--sweep lr has no values"),
        (["t.py", "--sweep", "--lr=0.1,0.2"], "--sweep --lr=0.1,0.2 has no values"),
        (["t.py", "--sweep=lr"], "--sweep=lr has no values"),
        (["t.py", "--sweep", "a=1", "--sweep", "lr"], "--sweep lr has no values"),
    ],
)
def test_a_sweep_that_was_mistyped_is_refused(theirs, said):
    with pytest.raises(UsageError) as refused:
        reject_mistyped(theirs)
    assert refused.value.message == said and "-- python SCRIPT --sweep VALUE" in refused.value.hint


@pytest.mark.parametrize("theirs", [["t.py", "--sweep", "a=1"], ["t.py", "--", "--sweep"], ["t.py", "--sweeps"], []])
def test_what_was_not_mistyped_is_let_through(theirs):
    reject_mistyped(theirs)


def test_several_words_become_several_options():
    assert expand_axes(["-c", "x", "--sweep", "a=1", "b=2", "--random"]) == [
        "-c",
        "x",
        "--sweep",
        "a=1",
        "--sweep",
        "b=2",
        "--random",
    ]
    assert expand_axes(["--sweep", "nothing"]) == ["--sweep", "nothing"]
    assert expand_axes(["--sweep"]) == ["--sweep"]


@given(
    st.lists(st.sampled_from(["--sweep", "a=1", "b=2..3", "x", "--epochs", "--random", "--max-runs", "5", "--", "-m"]))
)
def test_no_word_is_lost_and_none_changes_its_place(words):
    ours, rest = extract_sweep_options(words)
    assert sorted(ours + rest) == sorted(words)
    for part in (ours, rest):
        every = iter(words)
        assert all(word in every for word in part)


# -- specs of children ------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3), lambda one: st.lists(one, max_size=2), max_leaves=4
)
SPECS = st.dictionaries(
    st.sampled_from("abcde"), JSON | st.dictionaries(st.sampled_from("xyz+="), JSON), min_size=5, max_size=5
)


@given(SPECS, SPECS)
def test_a_child_is_its_parent_and_what_differs(parent, child):
    assert merge_spec(parent, json.loads(json.dumps(spec_difference(parent, child)))) == child


# -- best run ---------------------------------------------------------------------------------------------------------


class Child:
    def __init__(self, status=Status.COMPLETED, **metrics):
        self.status, self.detail, self.metrics, self.tags = status, None, metrics, ()


def sweep_run(**sweep):
    return SimpleNamespace(spec=SimpleNamespace(sweep=sweep, project_path="/no project", project_id="none"))


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"loss": 1.0, "val_loss": 2.0, "accuracy": 0.5}, "val_loss"),
        ({"loss": 1.0, "accuracy": 0.5, "epoch": 3}, "accuracy"),
        ({"loss": 1.0, "epoch": 3}, "loss"),
        ({"thing": 1.0}, "thing"),
        ({"thing": 1.0, "other": 2.0}, None),
        ({"thing": "text"}, None),
        ({}, None),
    ],
)
def test_the_metric_that_nobody_named(metrics, expected):
    assert ranking_metric(sweep_run(), [Child(**metrics), Child(**metrics)])[0] == expected
    assert ranking_metric(sweep_run(metric="x"), [Child(**metrics)]) == ("x", None)
    assert ranking_metric(sweep_run(metric="x", goal="min"), [Child(**metrics)]) == ("x", "min")


def test_the_best_got_through_and_has_a_number():
    children = [Child(a=1.0), Child(a=float("nan")), Child(), Child(Status.FAILED, a=9.0), Child(a=3), Child(a=True)]
    assert best(children, "a", "max") is children[4]
    assert best(children, "a", "min") is children[0]
    assert best(children, "b", "min") is None
    assert best(children, None, "min") is None
    assert best(children, "a", None) is None, "it might be the worst"
