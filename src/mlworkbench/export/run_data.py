"""The data of a run for all export formats: record, metric points, and outputs."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from ..errors import HistoryError
from ..history.child_runs import search_children
from ..history.nested_runs import child_id
from ..history.run_query import Query
from ..history.series.attempt_steps import attempt_starts
from ..history.series.series_store import Series
from ..history.store import History
from ..model import JsonDict, Run
from ..remote.shared.folder_tree import READ, FolderHandles
from ..remote.shared.layout import RunFolder
from ..runfiles.output_manifest import Output, outputs_of
from ..runfiles.safe_paths import path_problem

_NESTED_RUNS_FOLDER = "mlflow"  # folder in outputs/ with a subfolder for each nested run of the script


@dataclass(frozen=True)
class Item:
    """A run to export."""

    run: Run
    record: JsonDict  # for programs
    display: JsonDict  # for display
    folder: RunFolder
    name_in_script: str | None = None  # if the run is nested: its name in the script
    children: tuple[str, ...] = ()  # names of nested runs in the script, except one with the data of this run
    is_same: bool = False  # a nested run with the data of the run that contains it
    attempt_starts: tuple[float, ...] = ()  # of the script, except the first attempt

    @property
    def child(self) -> str | None:
        """The ``child`` argument for Series, or None if the run is not nested."""
        return self.name_in_script

    @property
    def owner(self) -> str | None:
        """The nested run in records that a script made, or None if they are those of the whole run."""
        return None if self.is_same else self.name_in_script

    @property
    def output_prefix(self) -> str:
        """The folder of a nested run below outputs/, with a slash; empty for other runs."""
        return "" if self.name_in_script is None else f"{_NESTED_RUNS_FOLDER}/{self.name_in_script}/"

    @property
    def title(self) -> str:
        return self.run.name or self.run.id


def with_children(history: History, runs: Iterable[Run]) -> list[Run]:
    """Return the runs without duplicates, each followed by its descendants."""
    selected: dict[str, Run] = {}
    parents: set[str] = set()
    pending = list(runs)[::-1]
    while pending:
        run = pending.pop()
        if run.id in selected:
            continue
        selected[run.id] = run
        parents |= _nested_parents(run)
        # A search reads every run in the history, so it is skipped for runs that are known to have no children.
        is_nested_alone = run.spec.inside and run.spec.folder not in selected
        if is_nested_alone or run.children or run.spec.sweep or run.id in parents:
            pending += search_children(history, run.spec, Query(hidden=True))
    return list(selected.values())


def _nested_parents(run: Run) -> set[str]:
    """Return the IDs of the run's nested runs that have nested runs themselves."""
    above = {child.get("parent") for child in run.children.values()}
    return {child_id(run.id, name) for name in above if isinstance(name, str)}


def make_items(
    history: History,
    runs: Iterable[Run],
    record: Callable[[Run], JsonDict],
    format_record: Callable[[JsonDict], JsonDict],
) -> list[Item]:
    """Create the items. ``record`` returns a run's record; ``format_record`` formats it for display."""
    parents: dict[str, Run] = {}
    names: dict[str, str] = {}  # ID of a nested run → its name in the script
    items = []
    for run in runs:
        folder, facts = history.paths.root.run(run.spec.folder), record(run)
        if not run.spec.inside:
            children = tuple(name for name, child in run.children.items() if not child.get("same"))
            starts = tuple(attempt_starts(run))
            items.append(Item(run, facts, format_record(facts), folder, children=children, attempt_starts=starts))
            continue
        parent = parents.get(run.spec.folder)
        if parent is None:
            parent = parents[run.spec.folder] = history.get(run.spec.folder)
            names.update((child_id(parent.id, name), name) for name in list(parent.children)[::-1])
        name_in_script = names.get(run.id) or run.id
        is_same = bool(parent.children.get(name_in_script, {}).get("same"))
        starts = tuple(attempt_starts(parent))
        display = format_record(facts)
        items.append(Item(run, facts, display, folder, name_in_script, is_same=is_same, attempt_starts=starts))
    return items


def points_of(item: Item) -> Series:
    """Return the up-to-date series of a run. The caller must close it."""
    series = Series(item.folder, item.attempt_starts)
    series.catch_up()
    return series


def files_of(item: Item) -> Iterator[tuple[str, Output]]:
    """Yield the run's output files with display names, except those of its nested runs."""
    prefix = item.output_prefix
    nested = tuple(f"{_NESTED_RUNS_FOLDER}/{name}/" for name in item.children)
    try:
        for output in outputs_of(item.folder)[0]():
            if (
                output.is_file
                and output.path.startswith(prefix)
                and not output.path.startswith(nested)
                and not path_problem(output.path)
            ):
                yield output.path[len(prefix) :], output
    except (OSError, HistoryError):
        return  # there are no outputs, or the manifest is damaged


def open_output(item: Item, output: Output) -> BinaryIO:
    """Open a regular file without following links; raise OSError if the file was not fetched."""
    parent, _, name = output.path.rpartition("/")
    with FolderHandles(item.folder.outputs) as folders:
        handle = os.open(name, READ | getattr(os, "O_NONBLOCK", 0), dir_fd=folders.open(parent))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(output.path)
    return open(handle, "rb")


def format_time(seconds: float) -> str:
    """Format a time as ISO 8601, as in the run record."""
    whole, micro = divmod(round(seconds * 1_000_000), 1_000_000)
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{micro:06}+00:00"
    except (ValueError, OverflowError, OSError):  # a script logged an invalid time
        return str(seconds)
