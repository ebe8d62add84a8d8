"""Submit a run: idempotency key, plan, secrets, record, launch, and resuming after interruptions."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from .. import submission
from ..config.project_folder import Project
from ..errors import HostError, LaunchError, SolveError, UsageError
from ..follow import Follower
from ..history.store import History, release
from ..inferred_state import INTERRUPTED, in_sweep
from ..model import Entry, JsonDict, Run, RunSpec
from ..passed_variables import read_named_variables
from ..paths import UserPaths
from ..report import units
from ..secret_sources import find_secret, known_values, registry_password
from ..submission import Draft
from ..submit_request import CheckedRequest, Request
from ..targets.target import Target
from .open_run import open_follower
from .submission_frontend import Frontend


@dataclass(frozen=True)
class Started:
    """A launched run and what is needed to follow it."""

    follower: Follower
    secrets: Mapping[str, str]  # by name; masked in the log
    was_submitted_before: bool = False  # the key was submitted before


def check_request(history: History, request: Request, frontend: Frontend, *, dry_run: bool = False) -> CheckedRequest:
    """Raise ``UsageError`` or ``UnknownName`` if the request is invalid; save its consents unless ``dry_run``."""
    request.check()
    request = read_named_variables(request, os.environ)
    lock = _lock_of(history.get(request.locked)) if request.locked else None
    if request.allow_builds and not dry_run:
        remember_builds(history.paths, request, frontend)
    resumed = history.get(request.resume) if request.resume else None
    return CheckedRequest(request, request.sweep.plan() if request.sweep else None, lock, resumed)


def plan_run(
    history: History, project: Project, checked: CheckedRequest, frontend: Frontend, *, dry_run: bool = False
) -> Draft:
    """Plan the run and report warnings and notes. Nothing is recorded or started."""
    with frontend.progress("snapshot", least=1e6) as progress:
        draft = submission.draft(
            project, checked, history.paths, progress.report, dry_run=dry_run, report=frontend.message
        )
    frontend.planned(draft)
    return draft


def start_run(history: History, project: Project, checked: CheckedRequest, frontend: Frontend) -> Started:
    """Submit a run, or return the run with the same key. Finish its submission if it was interrupted."""
    request = checked.request
    if request.key:
        run = history.by_key(submission.full_key(project, request.key))
        if run:
            return _start_again(history, run, checked, frontend)
    draft = plan_run(history, project, checked, frontend)
    secrets = secrets_of(draft.spec, request.secret_values, frontend)
    stored, new = submission.record(history, draft)
    if not new:
        return _start_again(history, history.get(stored.id), checked, frontend)
    follower = Follower(history, Run(stored), draft.target)
    try:
        _announce(stored, frontend)
        launch_run(history, stored, draft.target, secrets, frontend, everything=request.send_packages)
    except KeyboardInterrupt:
        follower.refresh()
        frontend.detached(follower.run)
        raise
    except (HostError, LaunchError, SolveError) as error:
        later = f"resume it with 'mlw experiment resume {stored.id}', or cancel it with 'mlw cancel {stored.id}'"
        error.hint = f"{error.hint}; {later}" if error.hint else later
        raise
    return Started(follower, secrets)


def _start_again(history: History, run: Run, checked: CheckedRequest, frontend: Frontend) -> Started:
    """Return the run with this key. Raises ``UsageError`` if its command or sweep differs."""
    request, key = checked.request, checked.request.key
    if request.entry is not None and _words(request.entry) != _words(run.spec.entry):
        command = " ".join((run.spec.entry.name, *run.spec.entry.arguments))
        raise UsageError(f"key {key!r} belongs to run {run.id}, which ran: {command}", "use another key")
    axes = {axis.name: axis.text for axis in checked.sweep.axes} if checked.sweep else None
    if axes != (run.spec.sweep or {}).get("axes"):
        raise UsageError(f"key {key!r} belongs to run {run.id}, which has a different --sweep", "use another key")
    _announce(run.spec, frontend)
    age = units.age(time.time() - run.spec.created)
    frontend.message(f"note: this key was submitted before ({age}); showing that run")
    return resume_run(history, run, frontend, request.secret_values)


def resume_run(
    history: History, run: Run, frontend: Frontend, secret_values: Mapping[str, str] | None = None
) -> Started:
    """Follow a run. If its submission was interrupted before a supervisor claimed it, finish the submission."""
    given = secret_values or {}
    follower = open_follower(history, run)
    if follower.refresh().detail == INTERRUPTED:
        if in_sweep(run):
            raise UsageError(
                f"run {run.id} is part of sweep {run.spec.parent}, whose submission was interrupted",
                f"mlw experiment resume {run.spec.parent}",
            )
        secrets = secrets_of(run.spec, given, frontend)
        follower.run = launch_run(history, run.spec, follower.target, secrets, frontend)
    return Started(follower, {**known_secrets(run, frontend, given), **given}, was_submitted_before=True)


def launch_run(
    history: History,
    spec: RunSpec,
    target: Target,
    secrets: Mapping[str, str],
    frontend: Frontend,
    *,
    everything: bool = False,
) -> Run:
    """Launch a recorded run. If this fails, another submission can resume it immediately."""
    launched = False
    try:
        with frontend.progress("upload") as progress:
            run = submission.launch(history, spec, target, secrets, progress.report, everything=everything)
        launched = True
        return run
    finally:
        if not launched:  # otherwise, this process would block the run; a notebook may run for days
            release(history, spec.id)


def secrets_of(spec: RunSpec, given: Mapping[str, str], frontend: Frontend) -> dict[str, str]:
    """Return the secret values for the run: from ``given``, the available sources, or a prompt."""
    ask = frontend.prompts
    secrets = {name: given[name] if name in given else find_secret(name, ask) for name in spec.secrets}
    if spec.container and spec.container.registry:
        from ..remote.shared.containers import REGISTRY_PASSWORD  # noqa: PLC0415 - for containers only

        registry = spec.container.registry
        secrets[REGISTRY_PASSWORD] = registry_password(registry["server"], registry["username"], ask)
    return secrets


def known_secrets(run: Run, frontend: Frontend, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the run's secrets that are available without a prompt, for masking them in the log."""
    values, unknown = known_values(name for name in run.spec.secrets if name not in (given or {}))
    for name in unknown:
        frontend.warning(f"secret {name} is not available here, so it cannot be masked in the output")
    return values


def _announce(spec: RunSpec, frontend: Frontend) -> None:
    frontend.message(f"RunId: {spec.id}")
    if spec.sweep:
        drawn = f", drawn with --seed {spec.sweep['seed']}" if spec.sweep["seed"] is not None else ""
        runs = units.pluralize(len(spec.sweep["children"]), "run")
        frontend.message(f"sweep of {runs}: {', '.join(spec.sweep['axes'])}{drawn}")


def _words(entry: Entry) -> tuple[str, ...]:
    return (entry.kind, os.path.basename(entry.name), *entry.arguments)


def _lock_of(run: Run) -> JsonDict | None:
    if run.spec.origin is not None:
        raise UsageError(
            f"the environment of run {run.id} is not available: it was submitted from {run.spec.origin}",
            "choose a run that was submitted from this machine",
        )
    return run.spec.lock


def remember_builds(paths: UserPaths, request: Request, frontend: Frontend) -> None:
    """Save the packages that may run build scripts to the user's settings."""
    from ..user_settings import add_setting  # noqa: PLC0415 - seldom given

    for name in sorted(request.allowed_builds):
        if add_setting(paths, "allowed-builds", name):
            frontend.message(f"note: {name} is now allowed to run its build script on this machine")
            frontend.message(f"hint: undo with 'mlw settings remove allowed-builds {name}'")
