"""Import runs that another laptop submitted to the same account on a target.

A spec from a target is untrusted input. Only fields that describe the run are imported; where it
runs is taken from this project's target. The journal, metrics, and log are copied byte for byte.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from .client_identity import client_of
from .dataclass_check import has_valid_types
from .errors import HostError, MlwError
from .fetch_outputs import are_outputs_downloaded, download_outputs
from .follow import Follower
from .history.child_runs import may_join
from .history.run_query import Query
from .history.store import History
from .hosts.host import Host
from .hosts.replies import printable
from .hosts.root_contents import Survey, TargetRun, fetch_survey, is_run_id
from .model import Compute, JsonDict, Run, RunSpec
from .remote.shared.layout import is_untracked
from .remote.shared.protocol_versions import SPEC
from .remote.shared.untrusted_json import parse_json
from .targets.target_factory import open_target

Progress = Callable[[int, int], None]

_MAX_SPEC_SIZE = 1024 * 1024
_MAX_TIMESTAMP = 1e11  # latest valid creation time, in seconds since 1970 (the year 5138)
_MAX_CHILDREN = 100_000
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PROJECT = re.compile(r"[0-9A-Za-z-]{1,64}")


@dataclass(frozen=True)
class Destination:
    """The destination of imported runs: the compute target and its project."""

    compute: Compute
    project_id: str
    project_path: str


@dataclass(frozen=True)
class Imported:
    """A run that another laptop submitted. If it was not imported, ``problem`` is the reason."""

    id: str
    laptop: str
    run: Run | None
    new: bool
    problem: str | None = None


def import_runs(
    history: History, destination: Destination, progress: Progress, *, outputs: bool = False
) -> list[Imported]:
    """Import all runs that were submitted elsewhere, and update those imported earlier."""
    target = open_target(destination.compute, history.paths)
    try:
        survey = fetch_survey(target.host, sizes=False)
        known_runs = {run.id: run for run in history.search(Query(hidden=True, inside=False))}
        me = client_of(history.paths).id  # a run of this laptop that is missing from the history was removed on purpose
        target_runs = [
            target_run
            for target_run in survey.runs
            if target_run.claimed and target_run.client != me and _is_foreign(known_runs.get(target_run.id))
        ]
        done = []
        for count, target_run in enumerate(target_runs, 1):
            done.append(_import(history, destination, target.host, survey, target_run, known_runs, outputs))
            progress(count, len(target_runs))
        return done
    finally:
        target.host.close()


def _is_foreign(run: Run | None) -> bool:
    return run is None or run.spec.origin is not None


def _import(
    history: History,
    destination: Destination,
    host: Host,
    survey: Survey,
    target_run: TargetRun,
    known_runs: Mapping[str, Run],
    outputs: bool,
) -> Imported:
    """Import one run. If that fails, return the reason, so that the other runs are still imported.

    ``known_runs`` contains the runs in the history by ID.
    """
    laptop = _laptop(survey, target_run)
    name = printable(target_run.id)
    before = known_runs.get(target_run.id)
    try:
        if before is None:
            spec, _ = history.add(
                _without_foreign_references(read_spec(host, destination, target_run.id, laptop), known_runs)
            )
            run = history.load(spec.id)[0]
        else:
            run = before
        return Imported(name, laptop, _download_run(history, run, outputs), before is None)
    except MlwError as error:
        return Imported(name, laptop, None, False, error.message)


def _laptop(survey: Survey, target_run: TargetRun) -> str:
    names = {client.id: client.name for client in survey.clients}
    return names.get(target_run.client or "", target_run.client[:8] if target_run.client else "unknown")


def _download_run(history: History, run: Run, outputs: bool) -> Run:
    """Copy the journal, metrics, and log of a run, and all outputs if ``outputs`` is set."""
    folder = history.paths.root.run(run.id)
    target = open_target(run.spec.compute, history.paths)
    try:
        follower = Follower(history, run, target)
        if not run.status.final:
            follower.refresh()
        if not follower.is_log_complete():
            for _ in follower.chunks(live=False):
                continue
        if outputs and not are_outputs_downloaded(folder):
            download_outputs(follower.run, target.host, folder, lambda done, total: None, lambda output: True)
        return follower.run
    finally:
        target.host.close()


# -- the spec --------------------------------------------------------------------------------------


def read_spec(host: Host, destination: Destination, run_id: str, laptop: str) -> RunSpec:
    """Return the validated description of the run. Raise an error if its spec is invalid."""
    if not is_run_id(run_id) or "." in run_id or is_untracked(run_id):
        raise HostError(f"{printable(run_id)} is not a valid run ID")
    data = host.read_file(run_id, "spec.json", 0, _MAX_SPEC_SIZE)
    if len(data) >= _MAX_SPEC_SIZE:
        raise HostError(f"the spec of run {run_id} is too large")
    try:
        given = parse_json(data)
        if not isinstance(given, dict) or given.get("id") != run_id or given.get("spec") != SPEC:
            raise ValueError("not the spec of this run")
        description = RunSpec.from_json(_descriptive_fields(given))
        spec = _imported_spec(description, destination, run_id, laptop)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise HostError(f"the spec of run {run_id} is damaged or from another version") from None
    if not has_valid_types(spec) or not 0 <= spec.created < _MAX_TIMESTAMP or not _DIGEST.fullmatch(spec.snapshot):
        raise HostError(f"the spec of run {run_id} is damaged")
    return spec


def _descriptive_fields(given: JsonDict) -> JsonDict:
    """Return only the fields that describe a run, not those that affect how mlw handles it, such as secrets."""
    kept = (
        *("id", "name", "project_id", "project_name", "created", "runconfig", "framework", "entry", "commands"),
        *("snapshot", "git", "gpus", "timeout", "tracked", "tags", "user", "parent", "varied", "client", "sweep"),
    )
    plain: JsonDict = {
        "key": "", "number": 0, "project_path": "", "compute": {"name": "", "type": ""}, "environment": {},
        "inherit": (), "secrets": (),
    }  # fmt: skip
    return {**plain, **{name: given[name] for name in kept if name in given}}


def _imported_spec(description: RunSpec, destination: Destination, run_id: str, laptop: str) -> RunSpec:
    if description.parent is not None and not is_run_id(description.parent):
        raise ValueError("parent")
    if not _PROJECT.fullmatch(description.project_id):
        raise ValueError("project")
    mine = description.project_id == destination.project_id
    return replace(
        description,
        key=f"fetched:{run_id}",  # the original key belongs to the laptop that submitted it
        compute=destination.compute,
        project_path=destination.project_path if mine else os.path.join(os.sep, "nonexistent", run_id),
        fetch="none",
        sweep=_sweep(description.sweep),
        varied={str(name): str(value) for name, value in description.varied.items()},
        origin=laptop,
    )


def _without_foreign_references(spec: RunSpec, known_runs: Mapping[str, Run]) -> RunSpec:
    """Remove references to known runs that ``may_join`` rejects, such as runs on another machine."""

    def is_free(name: str) -> bool:
        run = known_runs.get(name.partition(".")[0])
        return run is None or may_join(spec, run.spec)

    sweep = spec.sweep and {**spec.sweep, "children": [child for child in spec.sweep["children"] if is_free(child)]}
    return replace(spec, parent=spec.parent if spec.parent and is_free(spec.parent) else None, sweep=sweep)


def _sweep(data: JsonDict | None) -> JsonDict | None:
    """Return validated sweep data. The format is that of ``Sweep.to_json``."""
    if data is None:
        return None
    axes, children = data["axes"], data["children"]
    sound = isinstance(axes, dict) and all(isinstance(key, str) for pair in axes.items() for key in pair)
    sound = sound and isinstance(children, list) and len(children) <= _MAX_CHILDREN
    if not sound or not all(isinstance(key, str) and is_run_id(key) for key in children):
        raise ValueError("sweep")
    way, metric, goal, seed, parallel = (data.get(key) for key in ("way", "metric", "goal", "seed", "parallel"))
    for value, kinds in ((way, (str,)), (metric, (str, type(None))), (goal, (str, type(None)))):
        if not isinstance(value, kinds):
            raise ValueError("sweep")
    if not all(value is None or (type(value) is int and abs(value) < 2**53) for value in (seed, parallel)):
        raise ValueError("sweep")
    return {
        "way": way, "axes": axes, "children": children, "parallel": parallel, "metric": metric, "goal": goal,
        "seed": seed,
    }  # fmt: skip
