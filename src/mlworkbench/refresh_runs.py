"""Update the states of unfinished runs: one request per machine, in parallel, with a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator

from .errors import HistoryError, MlwError
from .follow import Follower
from .history.store import History, NewBytes, RunRemoved, append_all
from .hosts.unattached import UnattachedHost
from .inferred_state import has_started, in_contact, in_sweep, out_of_contact, wait_for_turn, waits_for_turn
from .model import JsonDict, Run
from .received_data import CHUNK
from .scheduler_state import parse_report
from .targets.target import Target
from .targets.target_factory import open_target

_MAX_RUNS_PER_TRANSACTION = 50  # maximum runs per transaction; submissions wait until it ends


def refresh(
    history: History, runs: Iterable[Run], timeout: float, warn: Callable[[str], None] = lambda message: None
) -> list[Run]:
    """Update and return the runs. A run whose machine does not respond in time keeps its last known state."""
    groups: dict[str, tuple[Target, list[Run]]] = {}
    refreshed: dict[str, Run] = {}
    for run in runs:
        refreshed[run.id] = run
        try:
            target = open_target(run.spec.compute, history.paths)
        except MlwError as error:  # one run that cannot be updated must not hide the others
            warn(f"run {run.id}: {error.message}")
            continue
        if isinstance(
            target.host, UnattachedHost
        ):  # no request is sent; each run reports that its machine is not attached
            refreshed[run.id] = Follower(history, run, target).refresh()
            continue
        attachment = target.host.attachment
        key = str(attachment.folder) if attachment else target.host.identity
        groups.setdefault(key, (target, []))[1].append(run)
    for _, ours in groups.values():
        ours.sort(key=lambda run: run.spec.number)  # so that the runs of a sweep are in order
    deadline = time.monotonic() + timeout
    local_groups = [group for group in groups.values() if not group[0].host.is_remote]
    threads = [_RefreshThread(history, *group, deadline) for group in groups.values() if group[0].host.is_remote]
    for target, ours in local_groups:
        refreshed.update(_refresh_local(history, target, ours, deadline, warn))
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        refreshed.update(thread.answers)
        for problem in thread.problems[:]:
            warn(problem)
        if thread.is_alive():
            unknown = [run for run in thread.runs if run.id not in thread.answers]
            refreshed.update((run.id, _record_timeout(history, run, timeout)) for run in unknown)
    return list(refreshed.values())


def _refresh_local(
    history: History, target: Target, runs: list[Run], deadline: float, warn: Callable[[str], None]
) -> Iterator[tuple[str, Run]]:
    """Update each run on this machine once. If time runs out, some data may remain unread."""
    waiting_sweeps = _WaitingSweeps()
    scheduled: list[Follower] = []
    prefetched = _prefetch_all(history, target, runs, deadline)
    for run in runs:
        now = waiting_sweeps.known(run)
        if now is None:
            try:
                follower = prefetched.get(run.id) or Follower(history, run, target, ask_scheduler=False)
                now = waiting_sweeps.learn(follower.refresh(deadline))
            except RunRemoved as error:
                warn(error.message)
                continue
            if follower.overdue:
                warn(f"run {run.id}: its metrics are not fully read yet; showing what was read so far")
            scheduled += [follower] if follower.scheduled else []
        yield run.id, now
    try:
        yield from _ask_scheduler(target, scheduled, deadline)
    except MlwError as error:
        warn(error.message)


def _ask_scheduler(target: Target, followers: list[Follower], deadline: float) -> Iterator[tuple[str, Run]]:
    """Update runs that are under a scheduler, with one request for all of them."""
    followers = [follower for follower in followers if not follower.run.status.final]
    if not followers or time.monotonic() >= deadline:
        return
    reports = target.statuses([follower.run.id for follower in followers])
    for follower in followers:
        try:
            yield follower.run.id, follower.take_report(parse_report(reports[follower.run.id]))
        except RunRemoved:
            continue  # it keeps its last known state


def _prefetch_all(history: History, target: Target, runs: list[Run], deadline: float) -> dict[str, Follower]:
    """Query many runs, and store the updates in a few transactions instead of one per run.

    Each transaction waits for the disk. With 200 finished runs and one transaction each, listing took a
    second and blocked submissions.
    """
    followers: dict[str, Follower] = {}
    news: list[NewBytes] = []
    size = 0
    for run in runs:
        if in_sweep(run) and run.accepted is None:
            continue  # most of these are waiting in a sweep and need no request
        if time.monotonic() >= deadline:
            break
        try:
            follower = followers[run.id] = Follower(history, run, target, ask_scheduler=False)
        except RunRemoved:
            continue  # refreshing the run itself reports the error
        new = follower.prefetch()
        if new is not None:
            news.append(new)
            size += sum(map(len, new[2].values()))
        if size >= CHUNK or len(news) >= _MAX_RUNS_PER_TRANSACTION:
            _store_updates(history, news, followers)
            news, size = [], 0
    _store_updates(history, news, followers)
    return followers


def _store_updates(history: History, news: list[NewBytes], followers: dict[str, Follower]) -> None:
    try:
        taken = append_all(history, news) if news else {}
    except HistoryError:
        return  # one update failed; each run then sends its own request
    for run_id, (run, reading) in taken.items():
        followers[run_id].take(run, reading)


def _record_timeout(history: History, run: Run, timeout: float) -> Run:
    """Record that the machine did not respond in time."""
    return _record_no_contact(history, run, f"no response within {timeout:g} s")


def _record_no_contact(history: History, run: Run, why: str, attached: bool = True) -> Run:
    if out_of_contact(run, why, attached) == run:
        return run
    return history.update(run.id, lambda current: out_of_contact(current, why, attached))


class _WaitingSweeps:
    """Tracker of sweeps with a waiting child. Later children wait too, because a sweep starts them in order."""

    def __init__(self) -> None:
        self._waiting: set[str | None] = set()

    def known(self, run: Run) -> Run | None:
        if not in_sweep(run) or has_started(run) or run.spec.parent not in self._waiting:
            return None
        # This state is not stored, because a sweep may have thousands of waiting runs, and the machine has just
        # reported that an earlier run of this sweep is waiting.
        return in_contact(wait_for_turn(run))

    def learn(self, run: Run) -> Run:
        if waits_for_turn(run):
            self._waiting.add(run.spec.parent)
        return run


class _RefreshThread(threading.Thread):
    """Thread that queries a machine for all of its runs over one connection."""

    def __init__(self, history: History, target: Target, runs: list[Run], deadline: float) -> None:
        super().__init__(name=runs[0].spec.compute.name, daemon=True)
        self.answers: dict[str, Run] = {}
        self.problems: list[str] = []  # why a run is shown in its last known state
        self._paths = history.paths
        self._target = target
        self._deadline = deadline
        self.runs = runs
        self.start()

    def run(self) -> None:
        history = History(self._paths)  # each thread needs its own connection to the index
        lost: JsonDict | None = None
        waiting_sweeps = _WaitingSweeps()
        scheduled: list[Follower] = []
        for run in self.runs:
            try:
                if lost is None:
                    known = waiting_sweeps.known(run)
                    if known is None:
                        follower = Follower(history, run, self._target, ask_scheduler=False)
                        known = waiting_sweeps.learn(follower.refresh(self._deadline))
                        scheduled += [follower] if follower.scheduled else []
                    now = known
                    lost = now.no_contact
                else:  # the machine has just failed to respond
                    now = _record_no_contact(history, run, lost["why"], lost["attached"])
            except RunRemoved:
                now = run  # the run was removed from the history: return its last known state
            except MlwError as error:  # such as a full local disk: still list the other runs
                self.problems.append(f"run {run.id}: {error.message}")
                now = run
            self.answers[run.id] = now
        try:
            self.answers.update(_ask_scheduler(self._target, scheduled, self._deadline))
        except MlwError as error:
            self.problems.append(error.message)
        self._target.host.close()
        history.close()
