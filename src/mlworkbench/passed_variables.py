"""Policy for variables that scripts take from the submitting user's shell.

``PassEnvironment`` is in a project file, and a project may come from anyone. It can therefore name only
variables of the default table (``remote/shared/shell_variables.py``) and variables that this user has
allowed (``mlw settings add pass-environment``). Values become part of the run record, so secrets are
never passed this way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .config.project_folder import locate_key
from .errors import ConfigError, UsageError
from .remote.shared.shell_variables import DEFAULT, PORTABLE, is_secret_name
from .targets.types import is_local_process
from .user_settings import read_settings

if TYPE_CHECKING:
    from .config.project_folder import Project
    from .model import Compute, RunConfig
    from .paths import UserPaths
    from .submit_request import Request

DEFAULT_NAMES = "default"  # item of PassEnvironment that stands for the default table
_URIS = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")
_INSIDE_RUN = "mlw:"  # scheme that mlw sets for scripts; a run that submits another run has it in its environment
_FILE_SCHEMES = ("", "file", "sqlite")
_NO_SCHEME = ("databricks", "databricks-uc", "uc")  # names of servers, not of folders
_LOOPBACK = re.compile(r"localhost|.+\.localhost|127(\.\d+){3}|::1|0\.0\.0\.0", re.IGNORECASE)
_CREDENTIALS = re.compile(r"://[^\s/?#]*(@|:[^\s@]*@)")  # also if a password contains a slash
_MAX_VALUE = 32_768  # characters, as in the HTTP API


@dataclass(frozen=True)
class PassedVariables:
    """Variables of the submitting user's shell."""

    values: Mapping[str, str] = field(default_factory=dict)
    unpassed: tuple[str, ...] = ()  # names in the default table that are set, but not passed
    notes: tuple[str, ...] = ()  # notices for the user


def read_named_variables(request: Request, environ: Mapping[str, str]) -> Request:
    """Return the request with a value for each ``--env NAME``. Raise ``UsageError`` if one cannot be passed."""
    named = [name for name, value in request.environment.items() if value is None]
    for name in named:
        secret = f"use --secret {name}, which does not store the value"
        if is_secret_name(name):
            raise UsageError(f"--env {name}: the name suggests a secret", secret)
        if name not in environ:
            raise UsageError(f"--env {name}: the variable is not set", f"export {name}=…, or use --env {name}=VALUE")
        problem = _value_problem(environ[name])
        if problem:
            raise UsageError(f"--env {name}: the value {problem}", secret)
    return replace(request, environment={**request.environment, **{name: environ[name] for name in named}})


def given_variables(request: Request) -> dict[str, str]:
    """Return the variables that the user sets for this run."""
    return {name: value for name, value in request.environment.items() if value is not None}


def pass_variables(
    project: Project,
    request: Request,
    runconfig: RunConfig,
    compute: Compute,
    paths: UserPaths,
    environ: Mapping[str, str],
) -> PassedVariables:
    """Return the variables to pass. Raise ``ConfigError`` for one that the user has not allowed projects to read."""
    local = is_local_process(compute)
    # Variables and secrets that the user sets take precedence.
    explicit = {*runconfig.environment_variables, *request.environment, *request.secret_names}
    shell = {name: value for name, value in environ.items() if not value.startswith(_INSIDE_RUN)}
    values, notes = {}, []
    for name in _wanted(runconfig.pass_environment, local=local):
        if name in explicit or name not in shell:
            continue
        if name not in DEFAULT and name not in read_settings(paths).pass_environment:
            raise _refusal(name, *locate_key(project.root, runconfig, "PassEnvironment"))
        problem = _value_problem(shell[name]) or (name in _URIS and _uri_problem(shell[name], local=local))
        if problem:
            way = f"--secret {name}" if _has_credentials(shell[name]) else f"--env {name}=VALUE"
            notes.append(f"{name} is not passed to the script: its value {problem}; to pass a value, use {way}")
        else:
            values[name] = shell[name]
    if values and not local:
        notes.insert(0, f"passed from your shell: {', '.join(sorted(values))}")
    unpassed = tuple(name for name in DEFAULT if name in shell and name not in values and name not in explicit)
    return PassedVariables(dict(sorted(values.items())), unpassed, tuple(notes))


def _refusal(name: str, path: str | None, line: int | None) -> ConfigError:
    return ConfigError(
        f"variable {name} is not passed: you have not allowed projects to read it",
        f"for this run, use --env {name}; to allow it for all projects, run: mlw settings add pass-environment {name}",
        path=path,
        line=line,
    )


def _wanted(names: tuple[str, ...], *, local: bool) -> tuple[str, ...]:
    """Return the names to pass, with the default table in place of ``default``."""
    defaults = DEFAULT if local else PORTABLE
    wanted = [item for name in names for item in (defaults if name == DEFAULT_NAMES else (name,))]
    return tuple(dict.fromkeys(name for name in wanted if not is_secret_name(name)))


def _value_problem(value: str) -> str | None:
    """Return why a value cannot be part of the run record, or None."""
    if len(value) > _MAX_VALUE:
        return f"is longer than {_MAX_VALUE} characters"
    if _has_credentials(value):
        return "contains credentials"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    return None


def _has_credentials(value: str) -> bool:
    """Return whether a URL in the value contains a user name or a password."""
    return _CREDENTIALS.search(value) is not None


def _uri_problem(value: str, *, local: bool) -> str | None:
    """Return why MLflow could not use a URI on the target, or None."""
    try:
        parts = urlsplit(value)
        host = parts.hostname or ""
    except ValueError:
        return "is not a valid URI"
    if parts.scheme in _FILE_SCHEMES or len(parts.scheme) == 1:  # a single letter is a Windows drive
        if value in _NO_SCHEME:
            return None
        if not local:
            return "is a path on this machine"
        path = parts.path[1:] if parts.scheme == "sqlite" else value if len(parts.scheme) == 1 else parts.path
        return None if PurePath(path).is_absolute() else "is a relative path, which is deleted with the working copy"
    return "is a server on this machine" if not local and _LOOPBACK.fullmatch(host) else None
