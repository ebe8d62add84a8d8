"""Build the command line that submits a run again.

Values from the run are never interpreted as mlw options.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .config.project_folder import Project, find_project
from .errors import MlwError, UsageError
from .history.store import History
from .model import JsonDict, Run
from .remote.shared.layout import is_untracked
from .retries import Retries
from .submit_request import Request, SweepOptions

_SUBMIT = ("experiment", "submit", "--detach", "-o", "json")
_VALUES = ("name", "gpus", "launcher", "processes", "timeout", "retries", "retry_delay", "resume", "key", "locked")
_FLAGS = ("upgrade", "send_packages", "unchecked")


def option(name: str, value: object) -> list[str]:
    """Return ``--name=value``, so that the value is never parsed as an option."""
    return [] if value is None else [f"--{name}={value}"]


def submit_words(request: Request) -> list[str]:
    """Return the ``mlw`` arguments ``experiment submit --detach -o json …``, with secrets by name."""
    return [*_SUBMIT, *submit_options(request)]


def submit_options(request: Request) -> list[str]:
    """Return all arguments after ``submit``. The script name must not start with a dash."""
    arguments = [*option("run-configuration", request.configuration), *option("target", request.target)]
    for name in _VALUES:
        arguments += option(name, getattr(request, name))
    arguments += [f"--retry-on={cause}" for cause in request.retry_on]
    arguments += [f"--tag={tag}" for tag in request.tags]
    for name, value in request.environment.items():
        arguments.append(f"--env={name}" if value is None else f"--env={name}={value}")
    arguments += [f"--secret={name}" for name in request.secret_names]
    arguments += _sweep_options(request.sweep) if request.sweep else []
    arguments += [f"--allow-build={name}" for name in request.allow_builds]
    arguments += [f"--allow-mount={path}" for path in request.allow_mounts]
    arguments += [f"--allow-network={name}" for name in request.allow_networks]
    arguments += [f"--{name.replace('_', '-')}" for name in _FLAGS if getattr(request, name)]
    if request.command is not None:
        return [*arguments, "--", request.command, *request.arguments]
    if request.module is not None:
        return [*arguments, "-m", request.module, *request.arguments]
    return [*arguments, request.script, *request.arguments] if request.script is not None else arguments


def typed_command(request: Request) -> str:
    """Return the command as a user would type it."""
    first = ["-c", request.configuration] if request.configuration is not None else []
    return shlex.join(["mlw", "submit", *first, *submit_options(replace(request, configuration=None))])


def _sweep_options(sweep: SweepOptions) -> list[str]:
    arguments = [f"--sweep={axis}" for axis in sweep.axes]
    arguments += ["--random"] if sweep.random else []
    for name in ("max_runs", "parallel", "seed", "metric", "goal"):
        arguments += option(name.replace("_", "-"), getattr(sweep, name))
    return arguments


@dataclass(frozen=True)
class PreviousRun:
    """A run that can be submitted again."""

    run: Run
    project: Project
    configurations: tuple[str, ...]
    scripts: tuple[str, ...]

    @property
    def locked(self) -> bool:
        """Whether the exact packages of the run's environment are known."""
        return (self.run.spec.lock or {}).get("kind") == "managed"

    @property
    def arguments(self) -> str:
        return shlex.join(self.run.spec.entry.arguments)


def find_previous_run(
    history: History,
    run_id: str,
    known_folders: Sequence[Path],
    hint: str = "open its folder on the Projects page first",
) -> PreviousRun:
    """Return what is needed to submit a run again.

    ``known_folders``: folders of opened projects, searched if the run's project has moved.
    ``hint``: shown if the project is not found.
    """
    run = history.get(run_id)
    if is_untracked(run.id):
        raise UsageError(f"run {run.id} was not submitted by mlw", "start its script the way it was started before")
    if run.spec.inside:
        raise UsageError(f"run {run.id} is nested in run {run.spec.folder}", f"rerun {run.spec.folder} instead")
    for folder in (Path(run.spec.project_path), *known_folders):
        project = _project(folder, run.spec.project_id)
        if project is not None:
            return PreviousRun(run, project, tuple(project.runconfigs()), _scripts(project.root))
    raise UsageError(f"project {run.spec.project_name} is no longer in {run.spec.project_path}", hint)


def _project(folder: Path, project_id: str) -> Project | None:
    try:
        project = find_project(folder)
    except (MlwError, OSError):
        return None
    return project if project.id == project_id else None


def _scripts(root: Path) -> tuple[str, ...]:
    """Return the scripts in the project's root folder. Other paths can be typed by the user."""
    try:
        return tuple(sorted(path.name for path in root.glob("*.py"))[:200])
    except OSError:
        return ()


def rerun_request(
    given: PreviousRun, *, configuration: str, script: str, arguments: str, locked: bool, name: str
) -> Request:
    """Return the request for a rerun. Raise ``UsageError`` for a missing script or unclosed quotes."""
    try:
        typed = shlex.split(arguments)
    except ValueError as error:
        raise UsageError(f"invalid arguments: {error}", "close the quotes") from None
    if not script.strip() or script.startswith("-"):
        raise UsageError("no script given", "specify a script of the project")
    spec = given.run.spec
    processes = spec.processes or {}
    kind = spec.entry.kind if spec.entry.kind in ("module", "command") else "script"
    entry: dict[str, Any] = {kind: script}
    return Request(
        configuration=configuration or None,
        arguments=typed,
        name=name.strip() or None,
        gpus=spec.gpus,
        **_retry_options(spec.retries),
        launcher=processes.get("launcher"),
        processes=processes.get("count"),
        locked=spec.id if locked else None,
        environment=spec.given,
        secrets=spec.secrets,
        sweep=_sweep(spec.sweep) if spec.sweep else None,
        **entry,
    )


def _retry_options(retries: Retries | None) -> dict[str, Any]:
    if retries is None:
        return {}
    return {"retries": retries.limit, "retry_on": retries.causes, "retry_delay": retries.delay}


def _sweep(sweep: JsonDict) -> SweepOptions:
    axes = sweep.get("axes")
    drawn = sweep.get("way") == "random"
    return SweepOptions(
        [f"{name}={values}" for name, values in axes.items()] if isinstance(axes, dict) else [],
        random=drawn,
        max_runs=len(sweep.get("children", ())) if drawn else None,
        **{name: sweep.get(name) for name in ("parallel", "metric", "goal")},
    )
