"""Decide what ``detach --purge`` deletes, based on the target's survey and this laptop's history.

A run may be deleted once its results are downloaded, either to this laptop or, according to the
target's records, to the laptop that submitted it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from ..client_identity import Client
from ..history.run_query import Query
from ..history.store import History
from ..hosts.root_contents import Survey, TargetClient, TargetRun
from ..model import Run
from ..paths import UserPaths
from ..remote.root_purge import stage_of
from ..runfiles.fetch_state import is_fetched

FETCHED, NOT_FETCHED, EXPIRED, RUNNING = "fetched", "not fetched", "not fetched, expired", "running"
KEPT, DELETED = "kept", "will be deleted"
HOME_KEPT = "kept: another laptop may need it"
THIS_LAPTOP = "this laptop"
COLUMNS = ("kind", "name", "project", "laptop", "size", "date", "state")
Row = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """Purge options. Other laptops expire after ``others`` seconds without contact."""

    others: float | None = None
    shared: bool = False
    show: Callable[[Plan], None] = lambda plan: None
    confirm: Callable[[Plan], None] = lambda plan: None  # raises an error to cancel


@dataclass(frozen=True)
class RunState:
    """A run on the machine, whether this laptop submitted it, and its state."""

    run: TargetRun
    mine: bool
    state: str


@dataclass(frozen=True)
class Plan:
    """A planned purge that has not been executed."""

    survey: Survey
    me: Client
    runs: tuple[RunState, ...]
    expired: frozenset[str]  # IDs of clients without recent contact
    shared: bool
    own_homes: frozenset[str] = frozenset()  # IDs of projects whose containers this laptop started on other machines

    def undownloaded_of_others(self) -> list[TargetRun]:
        """Return other laptops' runs whose results are not downloaded; they prevent a purge."""
        return [state.run for state in self.runs if not state.mine and state.state == NOT_FETCHED]

    def active(self) -> list[TargetRun]:
        return [state.run for state in self.runs if state.state == RUNNING]

    def undownloaded_of_this_laptop(self) -> list[TargetRun]:
        """Return this laptop's runs whose results are not downloaded."""
        return [state.run for state in self.runs if state.mine and state.state == NOT_FETCHED]

    def expired_runs(self) -> list[TargetRun]:
        return [state.run for state in self.runs if state.state == EXPIRED]

    def laptop(self, client: str | None) -> str:
        """Return the client's display name, with its ID if another client has the same name."""
        names = {one.id: one.name for one in self.survey.clients}
        name = names.get(client or "")
        if client is None or name is None:
            return client[:8] if client else "unknown"
        return name if list(names.values()).count(name) == 1 else f"{name} ({client[:8]})"

    def request(self) -> dict[str, Any]:
        """Return the request to the agent. Anything the request does not name is kept."""
        return {
            "do": "purge",
            "runs": {
                state.run.id: stage_of(state.run.empty, state.run.claimed, state.run.ended) for state in self.runs
            },
            "homes": self._homes(),
            "shared": [state.name for state in self.survey.shared] if self.shared else [],
            "clients": [
                state.id for state in self.survey.clients if state.id == self.me.id or state.id in self.expired
            ],
        }

    def _homes(self) -> list[str]:
        """Return container homes that no other laptop needs.

        A home does not record its owner. While another laptop uses the machine, this laptop deletes only
        the homes of its own containers.
        """
        theirs = {state.run.project_id for state in self.runs if not state.mine and state.state != EXPIRED}
        homes = [state.name for state in self.survey.homes if state.name not in theirs]
        present = {state.id for state in self.survey.clients} - self.expired - {self.me.id}
        return [name for name in homes if name in self.own_homes] if present else homes

    def rows(self) -> list[Row]:
        """Return the table of what is on the machine, and what the purge does with it."""
        projects: dict[str, list[TargetRun]] = {}
        for one in self.runs:
            projects.setdefault(one.run.project or "unknown", []).append(one.run)
        rows = [self._project(name, runs) for name, runs in sorted(projects.items())]
        rows += [self._client(one) for one in self.survey.clients]
        rows += [self._run(one) for one in self.runs]
        homes = self._homes()
        for folder in self.survey.shared:
            rows.append(_row("shared folder", folder.name, folder.bytes, folder.changed, _state(self.shared)))
        for folder in self.survey.homes:
            state = DELETED if folder.name in homes else HOME_KEPT
            rows.append(_row("container home", folder.name, folder.bytes, folder.changed, state))
        rows.append(_row("cache", "code, environments, packages", self.survey.replaceable, None, DELETED))
        rows += [_row("other file", name, None, None, KEPT) for name in self.survey.other]
        return rows

    def _project(self, name: str, runs: list[TargetRun]) -> Row:
        newest = max(run.created for run in runs)
        return _row("project", name, sum(run.bytes for run in runs), newest, f"{len(runs)} runs")

    def _client(self, client: TargetClient) -> Row:
        size = sum(judged.run.bytes for judged in self.runs if judged.run.client == client.id)
        state = THIS_LAPTOP if client.id == self.me.id else "expired" if client.id in self.expired else "another laptop"
        return _row("laptop", self.laptop(client.id), size, client.seen, state)

    def _run(self, run_state: RunState) -> Row:
        laptop = THIS_LAPTOP if run_state.mine else self.laptop(run_state.run.client)
        when = run_state.run.created or run_state.run.changed
        return {
            **_row("run", run_state.run.id, run_state.run.bytes, when, run_state.state),
            "project": run_state.run.project or None,
            "laptop": laptop,
        }


def make_plan(survey: Survey, history: History, me: Client, options: Options) -> Plan:
    """Return a plan with each run's owner and whether its results are downloaded."""
    known_runs = {run.id: run for run in history.search(Query(hidden=True, inside=False))}
    classifier = _Classifier(survey, history.paths, me, options.others)
    states = tuple(classifier.classify(one, known_runs.get(one.id)) for one in survey.runs)
    return Plan(survey, me, states, classifier.expired, options.shared, _own_homes(known_runs.values()))


def _own_homes(runs: Iterable[Run]) -> frozenset[str]:
    specs = [run.spec for run in runs if run.spec.origin is None]
    return frozenset(spec.project_id for spec in specs if spec.container and spec.compute.address)


class _Classifier:
    def __init__(self, survey: Survey, paths: UserPaths, me: Client, age: float | None) -> None:
        self._now, self._root, self._me, self._age = survey.now, paths.root, me, age
        self.expired = frozenset(
            client.id for client in survey.clients if client.id != me.id and self._is_old(client.seen)
        )
        self._present = {client.id for client in survey.clients} - self.expired

    def _is_old(self, when: float) -> bool:
        return self._age is not None and self._now - when >= self._age

    def classify(self, target_run: TargetRun, run: Run | None) -> RunState:
        is_own = run is not None and run.spec.origin is None
        mine = is_own or (target_run.client is not None and target_run.client == self._me.id)
        if target_run.is_supervised:
            return RunState(target_run, mine, RUNNING)
        if is_own and run is not None and is_fetched(run, self._root.run(run.id)):
            return RunState(target_run, mine, FETCHED)
        if (
            target_run.empty
            or (mine and not target_run.claimed)
            or (target_run.client is not None and target_run.client in target_run.fetched)
        ):
            return RunState(target_run, mine, FETCHED)  # even if there was nothing to download
        if not mine and target_run.client not in self._present and self._is_old(target_run.changed):
            return RunState(target_run, mine, EXPIRED)
        return RunState(target_run, mine, NOT_FETCHED)


def local_projects(projects: Collection[tuple[str, str]], mine: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Return this laptop's other projects that use the machine and whose folders still exist."""
    return tuple(project for project in projects if project != mine and os.path.isdir(project[0]))


def _row(kind: str, name: str, size: int | None, when: float | None, state: str) -> Row:
    date = datetime.fromtimestamp(when, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") if when else None
    return {
        "kind": kind, "name": name, "project": None, "laptop": None, "bytes": size, "date": date, "state": state,
    }  # fmt: skip


def _state(goes: bool) -> str:
    return DELETED if goes else KEPT
