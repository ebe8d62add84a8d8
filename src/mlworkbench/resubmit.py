"""Build the command line that submits a run again.

Values from the run can never become options of mlw.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .config.project import Project, find_project
from .errors import MlwError, UsageError
from .history.store import History
from .model import JsonDict, Run
from .remote.shared.layout import is_outside
from .request import Request, SweepOptions

_SUBMIT = ("experiment", "submit", "--detach", "-o", "json")
_FLAGS = ("upgrade", "send_packages", "unchecked")


def option(name: str, value: object) -> list[str]:
    """``--name=value``: whatever the value begins with, it stays one."""
    return [] if value is None else [f"--{name}={value}"]


def submit_words(request: Request) -> list[str]:
    """``mlw experiment submit --detach -o json …`` without ``mlw``. Of secrets, it has the names only."""
    return [*_SUBMIT, *submit_options(request)]


def submit_options(request: Request) -> list[str]:
    """All that follows ``submit``. A script must not begin with a dash."""
    words = [*option("run-configuration", request.configuration), *option("target", request.target)]
    for name in ("name", "gpus", "timeout", "key", "locked"):
        words += option(name, getattr(request, name))
    words += [f"--tag={tag}" for tag in request.tags]
    words += [f"--env={name}={value}" for name, value in request.environment.items()]
    words += [f"--secret={name}" for name in request.secret_names]
    words += _sweep_options(request.sweep) if request.sweep else []
    words += [f"--allow-build={name}" for name in request.allow_builds]
    words += [f"--allow-mount={path}" for path in request.allow_mounts]
    words += [f"--allow-network={name}" for name in request.allow_networks]
    words += [f"--{name.replace('_', '-')}" for name in _FLAGS if getattr(request, name)]
    if request.command is not None:
        return [*words, "--", request.command, *request.arguments]
    if request.module is not None:
        return [*words, "-m", request.module, *request.arguments]
    return [*words, request.script, *request.arguments] if request.script is not None else words


def typed_command(request: Request) -> str:
    """The command as one would type it."""
    first = ["-c", request.configuration] if request.configuration is not None else []
    return shlex.join(["mlw", "submit", *first, *submit_options(replace(request, configuration=None))])


def _sweep_options(sweep: SweepOptions) -> list[str]:
    words = [f"--sweep={axis}" for axis in sweep.axes]
    words += ["--random"] if sweep.random else []
    for name in ("max_runs", "parallel", "seed", "metric", "goal"):
        words += option(name.replace("_", "-"), getattr(sweep, name))
    return words


@dataclass(frozen=True)
class Again:
    """A run as it can be submitted once more."""

    run: Run
    project: Project
    configurations: tuple[str, ...]
    scripts: tuple[str, ...]

    @property
    def locked(self) -> bool:
        """Whether its environment is known to the last package."""
        return (self.run.spec.lock or {}).get("kind") == "managed"

    @property
    def arguments(self) -> str:
        return shlex.join(self.run.spec.entry.arguments)


def again(
    history: History, run_id: str, known: Sequence[Path], hint: str = "open its folder on the Projects page first"
) -> Again:
    """``known``: folders of projects that were opened here, in case the run's own has moved; ``hint``: for then."""
    run = history.get(run_id)
    if is_outside(run.id):
        raise UsageError(f"run {run.id} was not submitted by mlw", "start its script the way it was started before")
    if run.spec.inside:
        raise UsageError(f"run {run.id} is nested in run {run.spec.folder}", f"rerun {run.spec.folder} instead")
    for folder in (Path(run.spec.project_path), *known):
        project = _project(folder, run.spec.project_id)
        if project is not None:
            return Again(run, project, tuple(project.runconfigs()), _scripts(project.root))
    raise UsageError(f"project {run.spec.project_name} is no longer in {run.spec.project_path}", hint)


def _project(folder: Path, project_id: str) -> Project | None:
    try:
        found = find_project(folder)
    except (MlwError, OSError):
        return None
    return found if found.id == project_id else None


def _scripts(root: Path) -> tuple[str, ...]:
    """Of the project's folder itself; others can be typed."""
    try:
        return tuple(sorted(path.name for path in root.glob("*.py"))[:200])
    except OSError:
        return ()


def request_again(given: Again, *, configuration: str, script: str, arguments: str, locked: bool, name: str) -> Request:
    """Build the request. Raises ``UsageError`` if quotes in the arguments are not closed."""
    try:
        typed = shlex.split(arguments)
    except ValueError as error:
        raise UsageError(f"invalid arguments: {error}", "close the quotes") from None
    if not script.strip() or script.startswith("-"):
        raise UsageError("no script given", "specify a script of the project")
    spec = given.run.spec
    kind = spec.entry.kind if spec.entry.kind in ("module", "command") else "script"
    entry: dict[str, Any] = {kind: script}
    return Request(
        configuration=configuration or None,
        arguments=typed,
        name=name.strip() or None,
        gpus=spec.gpus,
        locked=spec.id if locked else None,
        environment=spec.given,
        secrets=spec.secrets,
        sweep=_sweep(spec.sweep) if spec.sweep else None,
        **entry,
    )


def _sweep(sweep: JsonDict) -> SweepOptions:
    axes = sweep.get("axes")
    drawn = sweep.get("way") == "random"
    return SweepOptions(
        [f"{name}={values}" for name, values in axes.items()] if isinstance(axes, dict) else [],
        random=drawn,
        max_runs=len(sweep.get("children", ())) if drawn else None,
        **{name: sweep.get(name) for name in ("parallel", "metric", "goal")},
    )
