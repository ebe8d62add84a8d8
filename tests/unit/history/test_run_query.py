"""Filters and order of lists: the --where language and the other options."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.errors import UsageError
from mlworkbench.history.expression import Compare, Join, Not, parse, parse_sort
from mlworkbench.history.history_api import History
from mlworkbench.history.parameters import number, parse_arguments
from mlworkbench.history.run_counts import values
from mlworkbench.history.run_query import Query
from mlworkbench.model import Compute, Entry
from mlworkbench.report.run_filters import parse_since
from tests.unit.history.test_store import paths, spec

METRICS = [
    {"accuracy": 0.5, "loss": 3, "odd name": 1},
    {"accuracy": 0.95, 'very "odd\\': 2},
    {"accuracy": float("nan"), "note": "good"},
    {"accuracy": [1, 2, 3], "lr": 7, "big": float("inf")},
    {},
]
TAGS = {1: ("best", "x y"), 2: ("team=vision", "fold:3"), 3: ("team=audio", "fold=0.5")}


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    store = History(paths(tmp_path_factory.mktemp("store")))
    entries = [
        ("train.py", ("--lr", "0.1", "--opt=adam")),
        ("train.py", ("--lr=0.01", "--version", "1.10")),
        ("src/train.py", ("--lr", "-0.5", "--fast")),
        ("other.py", ("--lr", "oops")),
        ("odd\udcff.py", ("--batch-size", "32", "--num_workers=4", "--a-b_c", "x")),
    ]
    for at, (name, arguments) in enumerate(entries):
        target = "gpu" if at == 3 else "local"
        run_spec = spec(at, entry=Entry("script", name, arguments), compute=Compute(target, "local"))
        store.add(replace(run_spec, tags=TAGS.get(at, ()), name="second" if at == 1 else None))
        store.update(run_spec.id, lambda run, at=at: replace(run, metrics=METRICS[at], started=5.0, ended=5.0 + at))
    yield store
    store.close()


def search(history: History, **options: object) -> list[int]:
    return [int(run.id[-1]) for run in history.search(Query(**options))]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("accuracy > 0.9", [1]),
        ("0.9 < accuracy", [1]),
        ("accuracy >= 0.5 and accuracy <= 0.95", [1, 0]),
        ("not accuracy > 0.9", [0]),
        ("accuracy != 0.5", [1]),
        ("lr < 0.05", [2, 1]),
        ("params.lr = 0.1 or metrics.lr == 7", [3, 0]),
        ("lr = 7", [3]),
        ("opt = 'adam'", [0]),
        ('version = "1.10"', [1]),
        ("version = 1.1", [1]),
        ("fast = true", [2]),
        ("`odd name` = 1", [0]),
        ('"odd name" = 1', [0]),
        ('`very "odd\\` = 2', [1]),
        ("big > 1e300", [3]),
        ('note = "good" OR accuracy = 0.5', [2, 0]),
        ('status = "submitting"', [4, 3, 2, 1, 0]),
        ('target = "gpu"', [3]),
        ("duration >= 3", [4, 3]),
        ('name = "second"', [1]),
        ("unknown > 0 or not unknown > 0", []),
        ("(accuracy > 0.9 or lr > 0.05) and not (lr = 7)", [1, 0]),
        ("run_number <= 2", [1, 0]),
        ('script_name = "odd\\\\udcff.py"', [4]),
        ("batch_size = 32", [4]),
        ("`batch-size` = 32", [4]),
        ("batch-size >= 32 and params.batch_size = '32'", [4]),
        ("`num-workers` = 4 and num_workers = 4", [4]),
        ("a_b_c = 'x' and `a-b-c` = 'x' and `a-b_c` = 'x'", [4]),
        ('tags = "best"', [1]),
        ('tags != "best"', [4, 3, 2, 0]),
        ('not tags = "best" and accuracy = 0.5', [0]),
        ('tags.team = "vision"', [2]),
        ('tags.team != "vision"', [3]),
        ("tags.fold < 3", [3]),
        ("tags.fold = 3", [2]),
        ("tags.best = true or tags.fold = '0.5'", [3, 1]),
        ("tags.tea = 1 or tags.nothing = 'x'", []),
    ],
)
def test_conditions(history, text, numbers):
    assert search(history, where=parse(text)) == numbers


def test_options(history):
    assert search(history, scripts=["train.py"]) == [2, 1, 0]
    assert search(history, scripts=["odd\udcff.py"]) == [4]
    assert search(history, targets=["gpu"]) == [3]
    assert search(history, tags=["x y"]) == [1]
    assert search(history, tags=["x y", "none"]) == []
    assert search(history, statuses=["Completed"]) == []
    assert search(history, since=1002.5) == [4, 3]
    assert search(history, limit=2) == [4, 3]
    assert search(history, project="another") == []


def test_order(history):
    assert search(history, sort="duration") == [0, 1, 2, 3, 4]
    assert search(history, sort="accuracy", descending=True)[:3] != [], "a list among numbers breaks nothing"
    assert search(history, sort="loss") == [0, 4, 3, 2, 1], "missing ones come last"
    assert search(history, sort="loss", descending=True) == [0, 4, 3, 2, 1]
    assert search(history, sort="opt") == [0, 4, 3, 2, 1]
    assert search(history, sort="tags.fold", descending=True) == [2, 3, 4, 1, 0]
    assert search(history, sort="tags") == [1, 3, 2, 4, 0]


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 1),
        ("accuracy", 9),
        ("accuracy >", 11),
        ("accuracy > 0.9 and", 19),
        ("accuracy ~ 3", 12),
        ("(a = 1", 7),
        ("a = 1)", 6),
        ("a = 1 b = 2", 7),
        ("status = Completed", 10),
        ("and = 1", 1),
        ("a = 'open", 5),
        ("1 = 2", 5),
        ("a = 12abc", 5),
    ],
)
def test_syntax_errors_have_a_position(text, position):
    with pytest.raises(UsageError, match=re.escape(f"position {position}")):
        parse(text)


def test_syntax_tree():
    assert parse("a = 1 or b < 2 and not c > 'x'") == Join(
        "or", (Compare("a", "=", 1), Join("and", (Compare("b", "<", 2), Not(Compare("c", ">", "x")))))
    )
    assert parse_sort("-accuracy") == ("accuracy", True)
    assert parse_sort("`-odd`") == ("-odd", False)
    with pytest.raises(UsageError):
        parse("(" * 5000 + "a = 1" + ")" * 5000)
    with pytest.raises(UsageError):
        parse("not " * 5000 + "a = 1")
    with pytest.raises(UsageError):
        parse(" and ".join(["a = 1"] * 1000))


@given(st.text(max_size=40) | st.from_regex(r"([a`\"'()=<>! 1.]|and|or|not)*", fullmatch=True))
def test_any_text_is_parsed_or_rejected(history, text):
    try:
        condition = parse(text)
    except UsageError:
        return
    search(history, where=condition)


def test_since():
    assert parse_since("2h", 10_000) == 2800
    assert parse_since("1.5 min", 100) == 10
    assert parse_since("2024-05-01T12:00:00Z", 0) == 1714564800
    assert parse_since("2024-05-01", 0) > 1.7e9
    for text in ("", "yesterday", "3 parsecs", "-2h"):
        with pytest.raises(UsageError):
            parse_since(text, 0)


def test_parameters():
    assert parse_arguments(("data.csv", "--lr", "0.1", "-b=3", "--fast", "--neg", "-0.5", "--", "--not", "me")) == {
        "lr": "0.1",
        "b": "3",
        "fast": None,
        "neg": "-0.5",
    }
    assert [number(text) for text in ("1", "1e-3", "x", "nan", None, "1e400")] == [1, 0.001, None, None, 1, None]


def test_count_per_value(history):
    assert values(history, Query(), "script") == {"train.py": 2, "src/train.py": 1, "other.py": 1, "odd\\udcff.py": 1}
    assert values(history, Query(scripts=["train.py"]), "target") == {"local": 3}
    assert values(history, Query(), "tags") == {
        "best": 1, "x y": 1, "team=vision": 1, "fold:3": 1, "team=audio": 1, "fold=0.5": 1
    }  # fmt: skip
