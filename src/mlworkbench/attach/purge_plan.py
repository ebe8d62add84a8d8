"""What ``detach --purge`` deletes: decided here from the target's survey and this laptop's history.

A run may go if its results are fetched: to this laptop, or, as the target recorded, to the laptop that submitted it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from ..client_identity import Client
from ..history.query import Query
from ..history.store import History
from ..hosts.survey import Survey, TargetClient, TargetRun
from ..model import Run
from ..paths import UserPaths
from ..remote.purge import stage_of
from ..runfiles.home_state import is_home

FETCHED, NOT_FETCHED, EXPIRED, RUNNING = "fetched", "not fetched", "not fetched, expired", "running"
STAYS, GOES = "kept", "will be deleted"
HOME_STAYS = "kept: another laptop may need it"
THIS = "this laptop"
COLUMNS = ("kind", "name", "project", "laptop", "size", "date", "state")
Row = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """What the user asks of a purge. ``others``: seconds without contact after which another laptop has expired."""

    others: float | None = None
    shared: bool = False
    show: Callable[[Plan], None] = lambda plan: None
    confirm: Callable[[Plan], None] = lambda plan: None  # raises an error to stop


@dataclass(frozen=True)
class Judged:
    """A run there, whether it is this laptop's, and its state."""

    run: TargetRun
    mine: bool
    state: str


@dataclass(frozen=True)
class Plan:
    """A purge that was decided and not yet done."""

    survey: Survey
    me: Client
    runs: tuple[Judged, ...]
    expired: frozenset[str]  # IDs of clients that have not been there for so long
    shared: bool
    own_homes: frozenset[str] = frozenset()  # IDs of the projects whose containers this laptop started elsewhere

    def others_lacking(self) -> list[TargetRun]:
        """Runs of other laptops whose results are not fetched: they keep a purge away."""
        return [one.run for one in self.runs if not one.mine and one.state == NOT_FETCHED]

    def going(self) -> list[TargetRun]:
        return [one.run for one in self.runs if one.state == RUNNING]

    def removed_mine(self) -> list[TargetRun]:
        """Submitted from here, removed from the history here, and not fetched before."""
        return [one.run for one in self.runs if one.mine and one.state == NOT_FETCHED]

    def given_up(self) -> list[TargetRun]:
        return [one.run for one in self.runs if one.state == EXPIRED]

    def laptop(self, client: str | None) -> str:
        """A name for people. Two data folders on one laptop have the same, and are told apart by their IDs."""
        known = {one.id: one.name for one in self.survey.clients}
        name = known.get(client or "")
        if client is None or name is None:
            return client[:8] if client else "unknown"
        return name if list(known.values()).count(name) == 1 else f"{name} ({client[:8]})"

    def request(self) -> dict[str, Any]:
        """As the agent takes it. Whatever is not named stays."""
        return {
            "do": "purge",
            "runs": {one.run.id: stage_of(one.run.empty, one.run.claimed, one.run.ended) for one in self.runs},
            "homes": self._homes(),
            "shared": [one.name for one in self.survey.shared] if self.shared else [],
            "clients": [one.id for one in self.survey.clients if one.id == self.me.id or one.id in self.expired],
        }

    def _homes(self) -> list[str]:
        """Container homes that no other laptop needs.

        A home does not record its owner. While another laptop uses the machine, this one deletes only those that it
        has run containers with.
        """
        theirs = {one.run.project_id for one in self.runs if not one.mine and one.state != EXPIRED}
        homes = [one.name for one in self.survey.homes if one.name not in theirs]
        present = {one.id for one in self.survey.clients} - self.expired - {self.me.id}
        return [name for name in homes if name in self.own_homes] if present else homes

    def rows(self) -> list[Row]:
        """Everything that is there, with its owner, size and date."""
        projects: dict[str, list[TargetRun]] = {}
        for one in self.runs:
            projects.setdefault(one.run.project or "unknown", []).append(one.run)
        made = [self._project(name, runs) for name, runs in sorted(projects.items())]
        made += [self._client(one) for one in self.survey.clients]
        made += [self._run(one) for one in self.runs]
        homes = self._homes()
        for folder in self.survey.shared:
            made.append(_row("shared folder", folder.name, folder.bytes, folder.changed, _state(self.shared)))
        for folder in self.survey.homes:
            state = GOES if folder.name in homes else HOME_STAYS
            made.append(_row("container home", folder.name, folder.bytes, folder.changed, state))
        made.append(_row("cache", "code, environments, packages", self.survey.replaceable, None, GOES))
        made += [_row("other file", name, None, None, STAYS) for name in self.survey.other]
        return made

    def _project(self, name: str, runs: list[TargetRun]) -> Row:
        newest = max(one.created for one in runs)
        return _row("project", name, sum(one.bytes for one in runs), newest, f"{len(runs)} runs")

    def _client(self, one: TargetClient) -> Row:
        size = sum(judged.run.bytes for judged in self.runs if judged.run.client == one.id)
        state = THIS if one.id == self.me.id else "expired" if one.id in self.expired else "another laptop"
        return _row("laptop", self.laptop(one.id), size, one.seen, state)

    def _run(self, one: Judged) -> Row:
        laptop = THIS if one.mine else self.laptop(one.run.client)
        when = one.run.created or one.run.changed
        return {
            **_row("run", one.run.id, one.run.bytes, when, one.state),
            "project": one.run.project or None,
            "laptop": laptop,
        }


def make_plan(survey: Survey, history: History, me: Client, options: Options) -> Plan:
    """Whose each run is, and whether its results are fetched."""
    known = {run.id: run for run in history.search(Query(hidden=True, inside=False))}
    judge = _Judge(survey, history.paths, me, options.others)
    judged = tuple(judge.judge(one, known.get(one.id)) for one in survey.runs)
    return Plan(survey, me, judged, judge.expired, options.shared, _own_homes(known.values()))


def _own_homes(runs: Iterable[Run]) -> frozenset[str]:
    specs = [run.spec for run in runs if run.spec.origin is None]
    return frozenset(spec.project_id for spec in specs if spec.container and spec.compute.address)


class _Judge:
    def __init__(self, survey: Survey, paths: UserPaths, me: Client, age: float | None) -> None:
        self._now, self._root, self._me, self._age = survey.now, paths.root, me, age
        self.expired = frozenset(one.id for one in survey.clients if one.id != me.id and self._is_old(one.seen))
        self._present = {one.id for one in survey.clients} - self.expired

    def _is_old(self, when: float) -> bool:
        return self._age is not None and self._now - when >= self._age

    def judge(self, one: TargetRun, known: Run | None) -> Judged:
        own = known is not None and known.spec.origin is None
        mine = own or (one.client is not None and one.client == self._me.id)
        if one.going:
            return Judged(one, mine, RUNNING)
        if own and known is not None and is_home(known, self._root.run(known.id)):
            return Judged(one, mine, FETCHED)
        if one.empty or (mine and not one.claimed) or (one.client is not None and one.client in one.fetched):
            return Judged(one, mine, FETCHED)  # also where there is nothing to fetch
        if not mine and one.client not in self._present and self._is_old(one.changed):
            return Judged(one, mine, EXPIRED)
        return Judged(one, mine, NOT_FETCHED)


def local_projects(found: Collection[tuple[str, str]], mine: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """The other projects of this laptop that use the machine; one whose folder is gone does not."""
    return tuple(one for one in found if one != mine and os.path.isdir(one[0]))


def _row(kind: str, name: str, size: int | None, when: float | None, state: str) -> Row:
    date = datetime.fromtimestamp(when, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") if when else None
    return {
        "kind": kind, "name": name, "project": None, "laptop": None, "bytes": size, "date": date, "state": state,
    }  # fmt: skip


def _state(goes: bool) -> str:
    return GOES if goes else STAYS
