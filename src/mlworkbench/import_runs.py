"""Runs that another laptop submitted to the same account of a target → this history.

Everything but the bytes of journal, metrics and log is decided here: a spec from a target is hostile input. Only
fields that describe the run are taken over; where it runs is what this project's target says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from .client_identity import client_of
from .errors import HostError, MlwError
from .fetch import bring_outputs, is_home
from .follow import Follower
from .history.children import may_join
from .history.query import Query
from .history.store import History
from .hosts.host import Host
from .hosts.replies import printable
from .hosts.survey import Survey, TargetRun, ask_survey, is_run_id
from .model import Compute, JsonDict, Run, RunSpec
from .remote.shared.layout import is_outside
from .remote.shared.untrusted import parse_json
from .remote.shared.versions import SPEC
from .targets.opening import open_target
from .typed import is_sound

Progress = Callable[[int, int], None]

_LONGEST_SPEC = 1024 * 1024
_LATEST = 1e11  # seconds since 1970, in the year 5138
_MOST_CHILDREN = 100_000
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PROJECT = re.compile(r"[0-9A-Za-z-]{1,64}")


@dataclass(frozen=True)
class Here:
    """This side of an import: the target's compute file, and the project that it is in."""

    compute: Compute
    project_id: str
    project_path: str


@dataclass(frozen=True)
class Imported:
    """One run of another laptop. ``problem``: why it is not here."""

    id: str
    laptop: str
    run: Run | None
    new: bool
    problem: str | None = None


def import_runs(history: History, here: Here, progress: Progress, *, outputs: bool = False) -> list[Imported]:
    """Take in all runs that were submitted elsewhere, and bring those up to date that were taken in before."""
    target = open_target(here.compute, history.paths)
    try:
        survey = ask_survey(target.host, sizes=False)
        known = {run.id: run for run in history.search(Query(hidden=True, inside=False))}
        me = client_of(history.paths).id  # a run from here that is not in the history was removed on purpose
        found = [one for one in survey.runs if one.claimed and one.client != me and _is_foreign(known.get(one.id))]
        done = []
        for count, one in enumerate(found, 1):
            done.append(_import(history, here, target.host, survey, one, known, outputs))
            progress(count, len(found))
        return done
    finally:
        target.host.close()


def _is_foreign(known: Run | None) -> bool:
    return known is None or known.spec.origin is not None


def _import(
    history: History, here: Here, host: Host, survey: Survey, one: TargetRun, known: Mapping[str, Run], outputs: bool
) -> Imported:
    """One that cannot be had must not keep the others away. ``known``: the runs of the history, by ID."""
    laptop = _laptop(survey, one)
    name = printable(one.id)
    before = known.get(one.id)
    try:
        if before is None:
            spec, _ = history.add(_without_others(read_spec(host, here, one.id, laptop), known))
            run = history.known(spec.id)[0]
        else:
            run = before
        return Imported(name, laptop, _bring(history, run, outputs), before is None)
    except MlwError as error:
        return Imported(name, laptop, None, False, error.message)


def _laptop(survey: Survey, one: TargetRun) -> str:
    names = {client.id: client.name for client in survey.clients}
    return names.get(one.client or "", one.client[:8] if one.client else "unknown")


def _bring(history: History, run: Run, outputs: bool) -> Run:
    """Journal, metrics and log; with ``outputs`` all of those, too."""
    folder = history.paths.root.run(run.id)
    target = open_target(run.spec.compute, history.paths)
    try:
        follower = Follower(history, run, target)
        if not run.status.final:
            follower.refresh()
        if not follower.log_is_home():
            for _ in follower.chunks(live=False):
                continue
        if outputs and not is_home(folder):
            bring_outputs(follower.run, target.host, folder, lambda done, total: None, lambda output: True)
        return follower.run
    finally:
        target.host.close()


# -- the spec --------------------------------------------------------------------------------------


def read_spec(host: Host, here: Here, run_id: str, laptop: str) -> RunSpec:
    """What describes the run, checked; an error if it is not the spec of such a run."""
    if not is_run_id(run_id) or "." in run_id or is_outside(run_id):
        raise HostError(f"{printable(run_id)} is not a valid run ID")
    data = host.read_file(run_id, "spec.json", 0, _LONGEST_SPEC)
    if len(data) >= _LONGEST_SPEC:
        raise HostError(f"the spec of run {run_id} is too large")
    try:
        given = parse_json(data)
        if not isinstance(given, dict) or given.get("id") != run_id or given.get("spec") != SPEC:
            raise ValueError("not the spec of this run")
        told = RunSpec.from_json(_described(given))
        made = _made(told, here, run_id, laptop)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise HostError(f"the spec of run {run_id} is damaged or from another version") from None
    if not is_sound(made) or not 0 <= made.created < _LATEST or not _DIGEST.fullmatch(made.snapshot):
        raise HostError(f"the spec of run {run_id} is damaged")
    return made


def _described(given: JsonDict) -> JsonDict:
    """The fields that describe a run. What would have an effect, such as variables and secrets, is left behind."""
    kept = (
        *("id", "name", "project_id", "project_name", "created", "runconfig", "framework", "entry", "commands"),
        *("snapshot", "git", "gpus", "timeout", "tracked", "tags", "user", "parent", "varied", "client", "sweep"),
    )
    plain: JsonDict = {
        "key": "", "number": 0, "project_path": "", "compute": {"name": "", "type": ""}, "environment": {},
        "inherit": (), "secrets": (),
    }  # fmt: skip
    return {**plain, **{name: given[name] for name in kept if name in given}}


def _made(told: RunSpec, here: Here, run_id: str, laptop: str) -> RunSpec:
    if told.parent is not None and not is_run_id(told.parent):
        raise ValueError("parent")
    if not _PROJECT.fullmatch(told.project_id):
        raise ValueError("project")
    mine = told.project_id == here.project_id
    return replace(
        told,
        key=f"fetched:{run_id}",  # its own key belongs to the laptop that submitted it
        compute=here.compute,
        project_path=here.project_path if mine else os.path.join(os.sep, "nonexistent", run_id),
        fetch="none",
        sweep=_sweep(told.sweep),
        varied={str(name): str(value) for name, value in told.varied.items()},
        origin=laptop,
    )


def _without_others(spec: RunSpec, known: Mapping[str, Run]) -> RunSpec:
    """The spec without a parent and children that are known to be runs of another machine, or of this laptop."""

    def is_free(name: str) -> bool:
        run = known.get(name.partition(".")[0])
        return run is None or may_join(spec, run.spec)

    sweep = spec.sweep and {**spec.sweep, "children": [one for one in spec.sweep["children"] if is_free(one)]}
    return replace(spec, parent=spec.parent if spec.parent and is_free(spec.parent) else None, sweep=sweep)


def _sweep(told: JsonDict | None) -> JsonDict | None:
    """As ``Sweep.to_json`` writes it."""
    if told is None:
        return None
    axes, children = told["axes"], told["children"]
    sound = isinstance(axes, dict) and all(isinstance(one, str) for pair in axes.items() for one in pair)
    sound = sound and isinstance(children, list) and len(children) <= _MOST_CHILDREN
    if not sound or not all(isinstance(one, str) and is_run_id(one) for one in children):
        raise ValueError("sweep")
    way, metric, goal, seed, parallel = (told.get(one) for one in ("way", "metric", "goal", "seed", "parallel"))
    for value, kinds in ((way, (str,)), (metric, (str, type(None))), (goal, (str, type(None)))):
        if not isinstance(value, kinds):
            raise ValueError("sweep")
    if not all(value is None or (type(value) is int and abs(value) < 2**53) for value in (seed, parallel)):
        raise ValueError("sweep")
    return {
        "way": way, "axes": axes, "children": children, "parallel": parallel, "metric": metric, "goal": goal,
        "seed": seed,
    }  # fmt: skip
