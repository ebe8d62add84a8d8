"""Validate a project's configuration files: each file by itself, and references between files."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..errors import ConfigError, UnknownName, UsageError
from ..model import Compute, Problem, RunConfig
from ..plugin_registry import known
from ..targets.types import Feature, type_of
from .config_files import check_file, key_line, read_runconfig
from .keys import closest_match
from .legacy_formats import apply_overrides
from .project_files import COMPUTE_SUFFIX, FOLDER, OLD_SUFFIX, RUNCONFIG_SUFFIX, is_outside
from .project_folder import FILE_KEYS, Project
from .yaml_tree import COPY_HINT, display_path, outside_message


def validate_project(project: Project) -> list[Problem]:
    """Return all problems in a project: first those in each file, then those in references."""
    problems: list[Problem] = []
    for path in sorted(project.folder.iterdir()) if project.folder.is_dir() else ():
        if is_config_file(path) and is_outside(path, project.root):
            problems.append(Problem(display_path(path), None, "error", outside_message(path.name, path), COPY_HINT))
        elif is_config_file(path):
            problems += check_file(path)
    if not project.computes():
        hint = "create one, such as local.compute with the line `type: local`"
        problems.append(Problem(display_path(project.folder), None, "warning", "no compute target", hint))
    for path in sorted(project.root.glob(f"*{OLD_SUFFIX}")):
        message = f"run configuration outside {FOLDER} is ignored"
        hint = f"move it to {FOLDER}/{path.stem}{RUNCONFIG_SUFFIX}"
        problems.append(Problem(path.name, None, "warning", message, hint))
    for name in project.runconfigs():
        with suppress(ConfigError):  # already reported
            problems += _check_references(project, project.runconfig_file(name))
    return problems


def is_config_file(path: Path) -> bool:
    """Return whether a file in aml_config is a configuration file that mlw reads."""
    return path.suffix in (COMPUTE_SUFFIX, RUNCONFIG_SUFFIX, OLD_SUFFIX) or _is_dependency_file(path.name)


def check_project_file(project: Project, path: Path) -> list[Problem]:
    """Return the problems in a project file, which may be a copy in another folder."""
    references = _check_references(project, path) if path.suffix in (RUNCONFIG_SUFFIX, OLD_SUFFIX) else []
    return [*check_file(path), *references]


def _is_dependency_file(name: str) -> bool:
    return re.match(r"(conda|spark)_dependencies.*\.ya?ml\Z", name) is not None


def _check_references(project: Project, path: Path) -> list[Problem]:
    """Return problems with references in a run configuration, such as missing files."""
    try:
        runconfig = read_runconfig(path)
    except ConfigError:
        return []  # already reported
    problems: list[Problem] = []

    def report(key: str, severity: str, message: str, hint: str | None = None) -> None:
        problems.append(Problem(display_path(path), key_line(path, key), severity, message, hint))

    for key in FILE_KEYS:
        file = getattr(runconfig, FILE_KEYS[key])
        if is_outside(project.root / file, project.root):
            report(key, "error", outside_message(file, project.root / file), COPY_HINT)
    compute = _read_compute(project, runconfig, report)
    if runconfig.target not in project.computes():
        suggestion = closest_match(runconfig.target, project.computes())
        hint = (
            f"did you mean {suggestion!r}?" if suggestion else f"available: {', '.join(project.computes()) or 'none'}"
        )
        report("Target", "error", f"unknown compute target {runconfig.target!r}", hint)
    plugin = runconfig.environment
    if plugin is not None and plugin not in known("environments"):
        report(
            "EnvironmentPlugin",
            "warning",
            f"plugin {plugin!r} is not installed",
            "install it in the environment of mlw",
        )
    managed = compute is not None and type_of(compute).has(Feature.MANAGED_ENVIRONMENTS)
    if managed and plugin is None and not (project.root / runconfig.conda_dependencies_file).is_file():
        report(
            "CondaDependenciesFile",
            "error",
            f"{runconfig.conda_dependencies_file} does not exist",
            "create it and list the packages that the script needs",
        )
    is_spark = runconfig.framework == "PySpark" and runconfig.spark_dependencies is None
    if is_spark and not (project.root / runconfig.spark_dependencies_file).is_file():
        report("SparkDependenciesFile", "warning", f"{runconfig.spark_dependencies_file} does not exist")
    script = runconfig.argument_vector[0] if runconfig.argument_vector else ""
    if script.endswith((OLD_SUFFIX, RUNCONFIG_SUFFIX)):
        report("ArgumentVector", "error", f"{script} is a run configuration, not a script", "specify a script")
    elif script.endswith(".py") and not (project.root / script).is_file():
        report("ArgumentVector", "warning", f"script {script} does not exist")
    return problems


def _read_compute(project: Project, runconfig: RunConfig, report: Callable[..., None]) -> Compute | None:
    try:
        compute = project.compute(runconfig.target)
    except (ConfigError, UnknownName, UsageError):
        return None  # reported elsewhere
    try:
        return apply_overrides(compute, runconfig.overrides)
    except ConfigError as error:
        report("environment.docker.enabled", "error", error.message, error.hint)
        return None
