"""Conditions and sort orders in SQL give the same result as in Python, for random runs and conditions."""

from __future__ import annotations

import math
import operator
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlworkbench.history import query_sql
from mlworkbench.history.expression import Compare, Condition, Join, Not
from mlworkbench.history.history_api import History
from mlworkbench.history.parameters import number, run_parameters, text
from mlworkbench.history.run_counts import count, exists
from mlworkbench.history.run_query import Query
from mlworkbench.history.run_values import numbers_from_keys, sort_key
from mlworkbench.history.sqlite_values import sqlite_text
from mlworkbench.model import Annotations, Entry, Run, Span
from tests.unit.history.test_store import paths, spec

NAMES = ("loss", "lr", "batch_size", "batch-size", "note", "children", "mode")
NUMBERS = (-math.inf, -1e300, -2.5, -1, -5e-324, -0.0, 0, 0.1, 0.5, 1, 3, 2**52 + 1, 1e300, math.inf)
TEXTS = ("", "adam", "Adam", "0.1", "x" * 201, "a\0b", "\udcff")
SIGNS = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip
COUNT = 60


def random_run(at: int, dice: random.Random) -> Run:
    metrics = {name: dice.choice((*NUMBERS, math.nan, True, *TEXTS, [1, 2])) for name in NAMES if dice.random() < 0.6}
    spans = {
        name: Span(dice.randrange(1, 3), dice.choice((None, -3.0, 0.1)), dice.choice((None, 0.5, 7.0)), 0.0, None)
        for name, value in metrics.items()
        if isinstance(value, (int, float))
    }
    params = {name: dice.choice((*NUMBERS, True, None, *TEXTS, [1])) for name in NAMES if dice.random() < 0.3}
    arguments = dice.choice(((), ("--lr", "0.1"), ("--lr=oops", "--batch-size", "32"), ("--mode",)))
    noted = Annotations(note=dice.choice((None, "adam", "long")))
    return Run(
        spec(at, entry=Entry("script", "train.py", arguments)),
        metrics=metrics,
        spans=spans,
        params=params,
        noted=noted,
        children={str(nth): {} for nth in range(dice.choice((0, 0, 3)))},
    )


_dice = random.Random(5)
RUNS = [random_run(at, _dice) for at in range(COUNT)]


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    store = History(paths(tmp_path_factory.mktemp("store")))
    fields = ("metrics", "spans", "params", "noted", "children")
    for run in RUNS:
        store.add(run.spec)
        # The second write replaces values, and the last one is the one to find.
        for other in (RUNS[0], run):
            store.update(run.id, lambda old, other=other: replace(old, **{key: getattr(other, key) for key in fields}))
    yield store
    store.close()


# -- the same in Python --------------------------------------------------------------------------------


def candidates(run: Run, name: str) -> list[tuple[object, object]]:
    """Return the number and the text of each value with this name, in order of precedence."""
    kind, _, rest = name.rpartition(".")
    parameters = [
        (number(value), text(value))
        for key, value in sorted(run_parameters(run).items(), key=lambda item: spelling(item[0], rest))
        if key.replace("-", "_") == rest.replace("-", "_")
    ]
    value = run.metrics.get(rest)
    if kind in ("min", "max"):
        span = run.spans.get(rest)
        extreme = (span.least if kind == "min" else span.most) if span and span.length > 1 else None
        value = value if extreme is None else extreme
    is_number = isinstance(value, (int, float)) and not math.isnan(value)
    is_text = isinstance(value, str) and len(value) <= 200
    metric = (value if is_number else None, value if is_text else None)
    found = {"params": parameters, "": [*parameters, metric]}.get(kind, [metric])
    field = {"note": run.noted.note, "children": len(run.children) or None}.get(name)
    if field is not None and all(pair == (None, None) for pair in found):
        found.append((field, None) if name == "children" else (None, field))
    return found


def spelling(key: str, name: str) -> int:
    spellings = [name, name.replace("-", "_"), name.replace("_", "-")]
    return spellings.index(key) if key in spellings else 3


def matches(run: Run, node: Condition) -> bool | None:
    """Return None if a value is unknown."""
    if isinstance(node, Not):
        inner = matches(run, node.inner)
        return None if inner is None else not inner
    if isinstance(node, Join):
        parts = [matches(run, part) for part in node.parts]
        decisive = node.word == "or"
        return decisive if decisive in parts else None if None in parts else not decisive
    is_text = isinstance(node.value, str)
    value = next((pair[is_text] for pair in candidates(run, node.name) if pair[is_text] is not None), None)
    if value is None:
        return None
    if is_text:
        stored, wanted = sqlite_text(str(value)), sqlite_text(str(node.value))
        if node.sign == "~":
            return wanted.lower() in stored.lower()
        return SIGNS[node.sign](stored, wanted)
    return SIGNS[node.sign](value, node.value)


def prefixed(*prefixes: str) -> st.SearchStrategy[str]:
    return st.builds("".join, st.tuples(st.sampled_from(prefixes), st.sampled_from(NAMES)))


comparisons = st.builds(
    Compare,
    prefixed("", "", "metrics.", "params.", "min.", "max."),
    st.sampled_from(tuple(SIGNS)),
    st.sampled_from((*NUMBERS, *TEXTS)),
) | st.builds(Compare, st.sampled_from(NAMES), st.just("~"), st.sampled_from(TEXTS))  # fmt: skip
conditions = st.recursive(
    comparisons,
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(Join, st.sampled_from(("and", "or")), st.lists(inner, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=5,
)


@settings(max_examples=300)
@given(where=conditions, few=st.sampled_from((0, 2000)))
def test_conditions_match_the_same_runs(history, where, few):
    """A comparison that few runs match is evaluated first; with few = 0, none is."""
    expected = [run.id for run in reversed(RUNS) if matches(run, where)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_sql, "_FEW", few)
        assert [run.id for run in history.search(Query(where=where, inside=False))] == expected
        assert count(history, Query(where=where, inside=False)) == len(expected)
        assert exists(history, Query(where=where, inside=False)) == bool(expected)


@settings(max_examples=200)
@given(
    name=prefixed("metrics.", "min."),
    descending=st.booleans(),
    limit=st.none() | st.integers(1, COUNT),
    offset=st.integers(0, COUNT),
)
def test_sort_orders_are_the_same(history, name, descending, limit, offset):
    def key(run: Run) -> tuple[object, ...]:
        value, shown = candidates(run, name)[0]
        return (0, value) if value is not None else (1, sqlite_text(str(shown)))

    known = [run for run in reversed(RUNS) if candidates(run, name)[0] != (None, None)]
    unknown = [run for run in reversed(RUNS) if run not in known]
    numbers = [run for run in known if key(run)[0] == 0]
    texts = [run for run in known if key(run)[0] == 1]
    parts = [sorted(part, key=key, reverse=descending) for part in (numbers, texts)]
    if descending:  # sorted(reverse=True) keeps the order of equal values
        parts.reverse()
    expected = [run.id for run in (*parts[0], *parts[1], *unknown)]
    query = Query(inside=False, sort=name, descending=descending, limit=limit, offset=offset)
    assert [run.id for run in history.search(query)] == expected[offset:][:limit]


@given(st.lists(st.floats(allow_nan=False)))
def test_sort_keys_have_the_order_of_the_numbers(values):
    keys = [sort_key(value) for value in values]
    assert list(numbers_from_keys(keys)) == values
    assert [value for _, value in sorted(zip(keys, values, strict=True))] == sorted(values)


def test_values_of_removed_runs_are_removed(tmp_path):
    store = History(paths(tmp_path))
    for run in RUNS[:5]:
        store.add(run.spec)
        store.update(run.id, lambda old, run=run: replace(old, metrics=run.metrics, params=run.params))
    for run in RUNS[:5]:
        store.remove(run.id)
    tables = ("value_names", "run_numbers", "run_texts")
    sizes = store.read(lambda connection: [connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables])
    assert sizes == [[], [], []]
    store.close()
