"""What is wrong with the configuration files of a project, each by itself and as they name each other."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..errors import ConfigError, UnknownName, UsageError
from ..model import Compute, Problem, RunConfig
from ..registry import known
from ..targets.types import Feature, type_of
from .dialects import override
from .files import key_line, problems, read_runconfig
from .keys import nearest
from .place import COMPUTE_SUFFIX, FOLDER, OLD_SUFFIX, RUNCONFIG_SUFFIX, leads_out
from .project import INSIDE, Project
from .yamlfile import COPY_IT, outside, show_path


def validate_project(project: Project) -> list[Problem]:
    """All problems of all files of a project: each file by itself, then what one file says of another."""
    found: list[Problem] = []
    for path in sorted(project.folder.iterdir()) if project.folder.is_dir() else ():
        if is_checked(path) and leads_out(path, project.root):
            found.append(Problem(show_path(path), None, "error", outside(path.name, path), COPY_IT))
        elif is_checked(path):
            found += problems(path)
    if not project.computes():
        hint = "create one, such as local.compute with the line `type: local`"
        found.append(Problem(show_path(project.folder), None, "warning", "no compute target", hint))
    for path in sorted(project.root.glob(f"*{OLD_SUFFIX}")):
        message = f"run configuration outside {FOLDER} is ignored"
        hint = f"move it to {FOLDER}/{path.stem}{RUNCONFIG_SUFFIX}"
        found.append(Problem(path.name, None, "warning", message, hint))
    for name in project.runconfigs():
        with suppress(ConfigError):  # said already
            found += _references(project, project.runconfig_file(name))
    return found


def is_checked(path: Path) -> bool:
    """Whether a file of aml_config is one that is read."""
    return path.suffix in (COMPUTE_SUFFIX, RUNCONFIG_SUFFIX, OLD_SUFFIX) or _is_dependencies(path.name)


def problems_of(project: Project, path: Path) -> list[Problem]:
    """Those of one file, which may be a copy in another place of one of the project's."""
    named = _references(project, path) if path.suffix in (RUNCONFIG_SUFFIX, OLD_SUFFIX) else []
    return [*problems(path), *named]


def _is_dependencies(name: str) -> bool:
    return re.match(r"(conda|spark)_dependencies.*\.ya?ml\Z", name) is not None


def _references(project: Project, path: Path) -> list[Problem]:
    """What a run configuration names and is not there."""
    try:
        runconfig = read_runconfig(path)
    except ConfigError:
        return []  # said already
    found: list[Problem] = []

    def note(key: str, severity: str, message: str, hint: str | None = None) -> None:
        found.append(Problem(show_path(path), key_line(path, key), severity, message, hint))

    for key in INSIDE:
        named = getattr(runconfig, INSIDE[key])
        if leads_out(project.root / named, project.root):
            note(key, "error", outside(named, project.root / named), COPY_IT)
    compute = _compute(project, runconfig, note)
    if runconfig.target not in project.computes():
        near = nearest(runconfig.target, project.computes())
        hint = f"did you mean {near!r}?" if near else f"available: {', '.join(project.computes()) or 'none'}"
        note("Target", "error", f"unknown compute target {runconfig.target!r}", hint)
    own = runconfig.environment
    if own is not None and own not in known("environments"):
        note("EnvironmentPlugin", "warning", f"plugin {own!r} is not installed", "install it in the environment of mlw")
    managed = compute is not None and type_of(compute).has(Feature.MANAGED_ENVIRONMENTS)
    if managed and own is None and not (project.root / runconfig.conda_dependencies_file).is_file():
        note(
            "CondaDependenciesFile",
            "error",
            f"{runconfig.conda_dependencies_file} does not exist",
            "create it and list the packages that the script needs",
        )
    is_spark = runconfig.framework == "PySpark" and runconfig.spark_dependencies is None
    if is_spark and not (project.root / runconfig.spark_dependencies_file).is_file():
        note("SparkDependenciesFile", "warning", f"{runconfig.spark_dependencies_file} does not exist")
    script = runconfig.argument_vector[0] if runconfig.argument_vector else ""
    if script.endswith((OLD_SUFFIX, RUNCONFIG_SUFFIX)):
        note("ArgumentVector", "error", f"{script} is a run configuration, not a script", "specify a script")
    elif script.endswith(".py") and not (project.root / script).is_file():
        note("ArgumentVector", "warning", f"script {script} does not exist")
    return found


def _compute(project: Project, runconfig: RunConfig, note: Callable[..., None]) -> Compute | None:
    try:
        compute = project.compute(runconfig.target)
    except (ConfigError, UnknownName, UsageError):
        return None  # said already, or about to be
    try:
        return override(compute, runconfig.overrides)
    except ConfigError as error:
        note("environment.docker.enabled", "error", error.message, error.hint)
        return None
