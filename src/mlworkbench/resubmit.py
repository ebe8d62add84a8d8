"""Build the command line that submits a run again.

Values from the run can never become options of mlw.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .config.project import Project, find_project
from .errors import MlwError, UsageError
from .history.store import History
from .model import Run
from .remote.folder import is_outside

_SUBMIT = ("experiment", "submit", "--detach", "-o", "json")


def option(name: str, value: object) -> list[str]:
    """``--name=value``: whatever the value begins with, it stays one."""
    return [] if value is None else [f"--{name}={value}"]


@dataclass(frozen=True)
class Submit:
    """``mlw experiment submit --detach -o json …``. ``script`` must not begin with a dash; secrets are names only."""

    configuration: str | None = None
    target: str | None = None
    script: str | None = None
    module: str | None = None
    command: str | None = None
    arguments: Sequence[str] = ()
    name: str | None = None
    tags: Sequence[str] = ()
    gpus: str | None = None
    timeout: str | None = None
    key: str | None = None
    locked: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Sequence[str] = ()
    sweep: Mapping[str, Any] | None = None

    def words(self) -> list[str]:
        return [*_SUBMIT, *self.options()]

    def options(self) -> list[str]:
        """All that follows ``submit``."""
        words = [*option("run-configuration", self.configuration), *option("target", self.target)]
        for name in ("name", "gpus", "timeout", "key", "locked"):
            words += option(name, getattr(self, name))
        words += [f"--tag={tag}" for tag in self.tags]
        words += [f"--env={one}={value}" for one, value in self.environment.items()]
        words += [f"--secret={one}" for one in self.secrets]
        words += _sweep_options(self.sweep) if self.sweep else []
        if self.command is not None:
            return [*words, "--", self.command, *self.arguments]
        if self.module is not None:
            return [*words, "-m", self.module, *self.arguments]
        return [*words, self.script, *self.arguments] if self.script is not None else words

    def typed(self) -> str:
        """As one would type it."""
        first = ["-c", self.configuration] if self.configuration is not None else []
        rest = replace(self, configuration=None).options()
        return shlex.join(["mlw", "submit", *first, *rest])


def _sweep_options(sweep: Mapping[str, Any]) -> list[str]:
    words = [f"--sweep={axis}" for axis in sweep["axes"]]
    words += ["--random"] if sweep.get("random") else []
    for name in ("max_runs", "parallel", "seed", "metric", "goal"):
        words += option(name.replace("_", "-"), sweep.get(name))
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


def words(given: Again, *, configuration: str, script: str, arguments: str, locked: bool, name: str) -> Submit:
    """Build the submission. Raises ``UsageError`` if quotes in the arguments are not closed."""
    try:
        typed = shlex.split(arguments)
    except ValueError as error:
        raise UsageError(f"invalid arguments: {error}", "close the quotes") from None
    if not script.strip() or script.startswith("-"):
        raise UsageError("no script given", "specify a script of the project")
    spec = given.run.spec
    kinds = {"module": {"module": script}, "command": {"command": script}}
    entry: dict[str, Any] = kinds.get(spec.entry.kind, {"script": script})
    return Submit(
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


def _sweep(told: dict[str, Any]) -> dict[str, Any]:
    axes = told.get("axes")
    drawn = told.get("way") == "random"
    return {
        "axes": [f"{name}={values}" for name, values in axes.items()] if isinstance(axes, dict) else [],
        "random": drawn,
        "max_runs": len(told.get("children", ())) if drawn else None,
        **{name: told.get(name) for name in ("parallel", "metric", "goal")},
    }
