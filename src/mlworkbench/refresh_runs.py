"""How runs stand that have not ended: each machine is asked once, all at the same time, and none for too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator

from .errors import HistoryError, MlwError
from .follow import CHUNK, Follower
from .history.store import History, News, RunRemoved, append_all
from .hosts.stranger import Stranger
from .inferred_state import in_contact, in_sweep, out_of_contact, wait_for_turn, waits_for_turn
from .model import JsonDict, Run
from .targets.opening import open_target
from .targets.target import Target

_TOGETHER = 50  # runs in one transaction: a submit waits until it is over


def refresh(
    history: History, runs: Iterable[Run], patience: float, warn: Callable[[str], None] = lambda words: None
) -> list[Run]:
    """The runs as they stand now; of a machine that does not answer in time, as they stood at the last contact."""
    groups: dict[str, tuple[Target, list[Run]]] = {}
    found: dict[str, Run] = {}
    for run in runs:
        found[run.id] = run
        try:
            target = open_target(run.spec.compute, history.paths)
        except MlwError as error:  # one run that cannot be asked about must not hide the others
            warn(f"run {run.id}: {error.message}")
            continue
        if isinstance(target.host, Stranger):  # nobody is asked; each says of itself that it is not attached
            found[run.id] = Follower(history, run, target).refresh()
            continue
        attachment = target.host.attachment
        key = str(attachment.folder) if attachment else target.host.identity
        groups.setdefault(key, (target, []))[1].append(run)
    for _, ours in groups.values():
        ours.sort(key=lambda run: run.spec.number)  # the runs of a sweep in the order of their turns
    deadline = time.monotonic() + patience
    here = [group for group in groups.values() if not group[0].host.distant]
    away = [_Asking(history, *group, deadline) for group in groups.values() if group[0].host.distant]
    for target, ours in here:
        found.update(_ask_here(history, target, ours, deadline, warn))
    for asking in away:
        asking.join(max(0.0, deadline - time.monotonic()))
        found.update(asking.answers)
        for problem in asking.problems[:]:
            warn(problem)
        if asking.is_alive():
            unknown = [run for run in asking.runs if run.id not in asking.answers]
            found.update((run.id, _silent(history, run, patience)) for run in unknown)
    return list(found.values())


def _ask_here(
    history: History, target: Target, runs: list[Run], deadline: float, warn: Callable[[str], None]
) -> Iterator[tuple[str, Run]]:
    """Each run of this machine is looked at once; there may be more to read of one than the time allows."""
    turns = _Turns()
    ahead = _ask_ahead(history, target, runs, deadline)
    for run in runs:
        now = turns.known(run)
        if now is None:
            try:
                follower = ahead.get(run.id) or Follower(history, run, target)
                now = turns.learn(follower.refresh(deadline))
            except RunRemoved as error:
                warn(error.message)
                continue
            if follower.overdue:
                warn(f"run {run.id}: its metrics are not fully read yet; showing what was read so far")
        yield run.id, now


def _ask_ahead(history: History, target: Target, runs: list[Run], deadline: float) -> dict[str, Follower]:
    """Ask about many runs, and have the history take in what is new in few transactions instead of one for each.

    Each of them waits for the disk: 200 runs that had ended made a list take a second, and submits wait.
    """
    found: dict[str, Follower] = {}
    news: list[News] = []
    size = 0
    for run in runs:
        if in_sweep(run) and run.accepted is None:
            continue  # most of them wait, and need not be asked about
        if time.monotonic() >= deadline:
            break
        try:
            follower = found[run.id] = Follower(history, run, target)
        except RunRemoved:
            continue  # its own refresh tells so
        new = follower.ask_ahead()
        if new is not None:
            news.append(new)
            size += sum(map(len, new[2].values()))
        if size >= CHUNK or len(news) >= _TOGETHER:
            _take_in(history, news, found)
            news, size = [], 0
    _take_in(history, news, found)
    return found


def _take_in(history: History, news: list[News], followers: dict[str, Follower]) -> None:
    try:
        taken = append_all(history, news) if news else {}
    except HistoryError:
        return  # because of one of them; each asks again for itself
    for run_id, (run, reading) in taken.items():
        followers[run_id].take(run, reading)


def _silent(history: History, run: Run, patience: float) -> Run:
    """The machine may still answer; what is told of the run is that it has not."""
    return _note(history, run, f"no response within {patience:g} s")


def _note(history: History, run: Run, why: str, attached: bool = True) -> Run:
    if out_of_contact(run, why, attached) == run:
        return run
    return history.note(run.id, lambda known: out_of_contact(known, why, attached))


class _Turns:
    """The runs of a sweep start in order: behind one that waits all do, and none of them need be asked about."""

    def __init__(self) -> None:
        self._waiting: set[str | None] = set()

    def known(self, run: Run) -> Run | None:
        if not in_sweep(run) or run.accepted is not None or run.spec.parent not in self._waiting:
            return None
        # Not noted: there may be a thousand of them. The machine has just told of the one before.
        return in_contact(wait_for_turn(run))

    def learn(self, run: Run) -> Run:
        if waits_for_turn(run):
            self._waiting.add(run.spec.parent)
        return run


class _Asking(threading.Thread):
    """One machine, asked about all its runs over one connection."""

    def __init__(self, history: History, target: Target, runs: list[Run], deadline: float) -> None:
        super().__init__(name=runs[0].spec.compute.name, daemon=True)
        self.answers: dict[str, Run] = {}
        self.problems: list[str] = []  # why a run is shown as it was known before
        self._paths = history.paths
        self._target = target
        self._deadline = deadline
        self.runs = runs
        self.start()

    def run(self) -> None:
        history = History(self._paths)  # a connection to the index belongs to one thread
        lost: JsonDict | None = None
        turns = _Turns()
        for run in self.runs:
            try:
                if lost is None:
                    now = turns.known(run) or turns.learn(Follower(history, run, self._target).refresh(self._deadline))
                    lost = now.no_contact
                else:  # the machine did not answer a moment ago: it would not now
                    now = _note(history, run, lost["why"], lost["attached"])
            except RunRemoved:
                now = run  # nobody will ask for it again
            except MlwError as error:  # such as a full disk here: the other runs must still be listed
                self.problems.append(f"run {run.id}: {error.message}")
                now = run
            self.answers[run.id] = now
        self._target.host.close()
        history.close()
