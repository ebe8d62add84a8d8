"""Saved views on the runs page: the same settings as on the command line, and none lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.saved_views import View as SavedView
from mlworkbench.ui.components.run_filter import RUN_COLUMNS, View
from mlworkbench.ui.components.view_settings import command_line_only, to_page_view, to_saved_view
from mlworkbench.ui.queries.runs import SORT_KEYS

NAMES = {"metrics": ["loss", "val/loss"], "params": ["lr", "batch-size"]}


def test_a_view_of_the_command_opens_on_the_page():
    saved = SavedView(
        where=("loss < 1", "lr = 1 or lr = 2"),
        text=("a", "b"),
        status=("failed", "cancelled"),
        sort="-lr",
        columns="run_id,Status,lr,batch_size,loss,exit_code,description",
        limit=5,
    )
    view = to_page_view(saved, NAMES)
    assert (view.where, view.text) == ("(loss < 1) and (lr = 1 or lr = 2)", "a b")
    assert (view.status, view.sort) == (("Failed", "Canceled"), "-params.lr")
    assert view.column == ("status", "params.lr", "params.batch-size", "metrics.loss", "note")
    assert view.children, "a search on the command line includes child runs"
    assert command_line_only(saved, NAMES) == "--columns=exit_code --limit=5"


@pytest.mark.parametrize(
    ("sort", "column"),
    [
        ("run_number", "number"), ("-start_time_utc", "-started"), ("created_utc", "created"), ("loss", "metrics.loss"),
        ("-`val/loss`", "-metrics.val/loss"), ("params.x", "params.x"), ("exit_code", ""), ("min.loss", ""),
        ("children", ""), ("-", ""),
    ],
)  # fmt: skip
def test_sort_keys_of_the_command(sort, column):
    saved = SavedView(sort=sort)
    view = to_page_view(saved, NAMES)
    assert view.sort == column
    assert to_saved_view(view, saved, NAMES).sort == sort
    assert bool(command_line_only(saved, NAMES)) is not bool(column)


def test_columns_include_the_sort_column():
    assert to_page_view(SavedView(sort="loss", columns="status"), NAMES).column == ("status", "metrics.loss")


def test_what_the_page_lacks_is_kept():
    saved = SavedView(text=("two words",), where=("a", "b"), status=("failed",), group="lr", limit=5)
    view = to_page_view(saved, NAMES)
    assert to_saved_view(view, saved, NAMES) == replace(saved, children=True)
    changed = to_saved_view(replace(view, text="word", chart="none"), saved, NAMES)
    assert (changed.text, changed.where, changed.group, changed.limit) == (("word",), ("a", "b"), "lr", 5)
    grouped = to_saved_view(replace(view, column=("status",)), saved, NAMES)
    assert (grouped.columns, grouped.group) == ("run_id,status", None), "the command has either groups or columns"
    named = replace(saved, group=None, columns="run_id,exit_code,lr")
    assert to_saved_view(replace(view, column=("note",)), named, NAMES).columns == "run_id,description,exit_code"


def test_excluded_child_runs_remain_excluded():
    saved = to_saved_view(View(where="loss < 1"), SavedView(), NAMES)
    assert saved.top_level
    assert not to_page_view(saved, NAMES).children
    assert not to_saved_view(View(where="loss < 1", children=True), saved, NAMES).top_level


WORDS = st.lists(st.text("abc", min_size=1), max_size=3, unique=True)
COLUMNS = [*RUN_COLUMNS, "metrics.loss", "metrics.val/loss", "params.lr", "params.batch-size"]
SORTS = ["", *SORT_KEYS, *COLUMNS[-4:]]
VIEWS = st.builds(
    View,
    text=WORDS.map(" ".join),
    where=st.sampled_from(["", "loss < 1"]),
    status=st.sampled_from([(), ("Failed", "Running")]),
    target=WORDS.map(tuple),
    tag=WORDS.map(tuple),
    since=st.sampled_from(["", "7d"]),
    parent=st.sampled_from(["", "demo-1"]),
    children=st.booleans(),
    archived=st.booleans(),
    sort=st.sampled_from(SORTS),
    column=st.lists(st.sampled_from(COLUMNS), max_size=4, unique=True).map(tuple),
    chart=st.sampled_from(["duration", "none", "metrics.loss"]),
)


@given(VIEWS, VIEWS)
def test_a_view_of_the_page_is_restored(view, other):
    for existing in (SavedView(), to_saved_view(other, SavedView(), NAMES)):
        restored = to_page_view(SavedView.from_json(to_saved_view(view, existing, NAMES).to_json()), NAMES)
        added = (view.sort,) if view.column and view.sort not in ("", "id", *view.column) else ()
        assert restored == replace(view, column=(*view.column, *added))
