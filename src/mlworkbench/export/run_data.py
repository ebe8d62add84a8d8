"""What is exported of a run, and where it lies: its record, its points, its outputs."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from ..errors import HistoryError
from ..history.children import search_children
from ..history.family import child_id
from ..history.query import Query
from ..history.series.series import Series
from ..history.store import History
from ..model import JsonDict, Run
from ..remote.shared.layout import RunFolder
from ..remote.shared.tree import READ, Folders
from ..runfiles.beneath import refusal
from ..runfiles.manifest import Output, outputs_of

_OF_CHILDREN = "mlflow"  # below outputs/: a folder for each run that the script made inside this one


@dataclass(frozen=True)
class Item:
    """One run on its way out."""

    run: Run
    record: JsonDict  # as programs read it
    words: JsonDict  # as people read it
    folder: RunFolder
    told: str | None = None  # of a run inside another: what its script calls it
    children: tuple[str, ...] = ()  # what the script calls those inside it

    @property
    def child(self) -> str | None:
        """Whose points they are, as Series wants it."""
        return self.told

    @property
    def title(self) -> str:
        return self.run.name or self.run.id


def with_children(history: History, runs: Iterable[Run]) -> list[Run]:
    """The runs, each followed by its children and by theirs; none of them twice."""
    found: dict[str, Run] = {}
    parents: set[str] = set()
    waiting = list(runs)[::-1]
    while waiting:
        run = waiting.pop()
        if run.id in found:
            continue
        found[run.id] = run
        parents |= _parents_inside(run)
        # A search looks at every run that there is: not for the many of which it is known that they have none.
        untold = run.spec.inside and run.spec.folder not in found
        if untold or run.children or run.spec.sweep or run.id in parents:
            waiting += search_children(history, run.spec, Query(hidden=True))
    return list(found.values())


def _parents_inside(run: Run) -> set[str]:
    """Those inside it that have children of their own."""
    above = {told.get("parent") for told in run.children.values()}
    return {child_id(run.id, name) for name in above if isinstance(name, str)}


def make_items(
    history: History, runs: Iterable[Run], record: Callable[[Run], JsonDict], words: Callable[[JsonDict], JsonDict]
) -> list[Item]:
    """``record`` and ``words`` say what programs and people read of a run."""
    around: dict[str, Run] = {}
    names: dict[str, str] = {}  # of those inside, by their ids
    items = []
    for run in runs:
        folder, facts = history.paths.root.run(run.spec.folder), record(run)
        if not run.spec.inside:
            items.append(Item(run, facts, words(facts), folder, children=tuple(run.children)))
            continue
        holder = around.get(run.spec.folder)
        if holder is None:
            holder = around[run.spec.folder] = history.get(run.spec.folder)
            names.update((child_id(holder.id, name), name) for name in list(holder.children)[::-1])
        told = names.get(run.id)
        items.append(Item(run, facts, words(facts), folder, told or run.id))
    return items


def points_of(item: Item) -> Series:
    """All that is there now; the caller closes it."""
    series = Series(item.folder)
    series.catch_up()
    return series


def files_of(item: Item) -> Iterator[tuple[str, Output]]:
    """The run's own output files, each with its name for people. Those of runs inside it are theirs."""
    above = f"{_OF_CHILDREN}/{item.told}/" if item.told is not None else ""
    theirs = tuple(f"{_OF_CHILDREN}/{name}/" for name in item.children)
    try:
        for one in outputs_of(item.folder)[0]():
            if one.is_file and one.path.startswith(above) and not one.path.startswith(theirs) and not refusal(one.path):
                yield one.path[len(above) :], one
    except (OSError, HistoryError):
        return  # there are none, or what lists them is damaged


def open_output(item: Item, output: Output) -> BinaryIO:
    """A plain file; no link is followed on the way. OSError if it is not here."""
    parent, _, name = output.path.rpartition("/")
    with Folders(item.folder.outputs) as folders:
        handle = os.open(name, READ | getattr(os, "O_NONBLOCK", 0), dir_fd=folders.open(parent))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(output.path)
    return open(handle, "rb")


def moment(seconds: float) -> str:
    """ISO 8601, as the record has it."""
    whole, micro = divmod(round(seconds * 1_000_000), 1_000_000)
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{micro:06}+00:00"
    except (ValueError, OverflowError, OSError):  # what a script gave as a time
        return str(seconds)


def plain_value(value: Any) -> Any:
    """Within strict JSON: NaN and infinities as words."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(name): plain_value(one) for name, one in value.items()}
    return [plain_value(one) for one in value] if isinstance(value, (list, tuple)) else value
