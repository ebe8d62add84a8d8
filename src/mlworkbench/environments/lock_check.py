"""Validate the lock in a run record before ``--locked`` installs its packages.

A run record may come from a target or be edited. Its lock is therefore untrusted input, whose strings become paths,
URLs, and requirement lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from ..errors import ConfigError, SolveError
from ..model import JsonDict
from ..remote.shared.environment_layout import FORMAT, digest_of
from .local_files import check_repository

_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_WORD = re.compile(r"[A-Za-z0-9_.+!-]+")  # versions, builds, and keys of uv Pythons
_FILE = re.compile(r"[A-Za-z0-9_][^/\\\s${}]*")
_ADDRESS = re.compile(r"https?://[^\s\\]+")
_FOLDER = re.compile(r"(?!/)(?!(?:.*/)?\.\.(?:/|\Z))[^\s\\${}]+")
_LIBC = re.compile(r"musl|\d+\.\d+")
_KEYS = ("kind", "format", "platform", "glibc", "cuda", "python", "conda", "pip", "instead", "built_in", "digest")
_PYTHON_KEYS = ("source", "version", "key", "url", "path")  # other keys come from the user's current settings


class _InvalidLock(Exception):
    """An invalid lock; the message is the reason."""


def validate_lock(lock: Mapping[str, Any], *, contained: bool) -> JsonDict:
    """Return the lock, reduced to the keys that define an environment; raise ConfigError if invalid."""
    hint = "omit --locked to resolve the packages again"
    python = lock.get("python")
    if contained and isinstance(python, dict) and python.get("source") == "host":
        raise ConfigError(
            f"the environment of that run is based on {str(python.get('path'))[:200]!r}, a Python of its host, which"
            " containers cannot use",
            hint,
        )
    relevant = {key: lock[key] for key in _KEYS if key in lock}
    if isinstance(python, dict):
        relevant["python"] = {key: python[key] for key in _PYTHON_KEYS if key in python}
    try:
        _check(relevant)
        if digest_of(relevant) != relevant["digest"]:
            raise _InvalidLock("the digest does not match the packages")
    except (_InvalidLock, SolveError) as error:
        raise ConfigError(f"the lock file of that run is not valid: {error}", hint) from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise ConfigError("the lock file of that run is not valid: it is incomplete", hint) from None
    return relevant


def _check(lock: JsonDict) -> None:
    if lock["format"] != FORMAT:
        raise _InvalidLock("it has the format of another version of ML Workbench")
    _require(lock, "glibc", _LIBC, optional=True)
    _require(lock, "cuda", _WORD, optional=True)
    _check_python(lock["python"])
    for name, check in (("conda", _check_conda), ("pip", _check_pip)):
        if not isinstance(lock[name], list):
            raise _InvalidLock(f"{name} is not a list")
        _check_entries(lock[name], check)
    alternative = lock.get("instead")
    if alternative is not None:
        _require(alternative, "version", _WORD)
        _require(alternative, "file", _FOLDER, optional=True)


def _check_entries(entries: list[Any], check: Callable[[JsonDict], None]) -> None:
    for entry in entries:
        if not isinstance(entry, dict):
            raise _InvalidLock("a package is not a table")
        _require(entry, "name", _NAME)
        _require(entry, "size", None, optional=True)
        check(entry)


def _check_python(python: JsonDict) -> None:
    _require(python, "version", _WORD)
    source = python["source"]
    if source == "uv":
        _require(python, "key", _WORD)
        _require(python, "url", re.compile(r"[^\s\\]+/[A-Za-z0-9_][^/\s\\]*"))
    elif source == "host":
        _require(python, "path", re.compile(r"/[^\0\n\r]+"))
    elif source != "conda":
        raise _InvalidLock(f"unknown source of Python: {str(source)[:40]!r}")


def _check_conda(entry: JsonDict) -> None:
    for name in ("version", "build", "subdir"):
        _require(entry, name, _WORD)
    _require(entry, "sha256", _SHA256, optional=bool(entry.get("md5")))
    _check_location(entry)
    if not all(isinstance(dependency, str) for dependency in entry["depends"]):
        raise _InvalidLock(f"{entry['name']} has a dependency that is not a package")


def _check_pip(entry: JsonDict) -> None:
    _require(entry, "version", _WORD, optional=True)
    if entry.get("git"):
        check_repository(entry["name"], str(entry["git"]))
        _require(entry, "git", re.compile(r"[A-Za-z][^\s\\${}]+"))
        _require(entry, "commit", _COMMIT)
        _require(entry, "folder", _FOLDER, optional=True)
        return
    _require(entry, "sha256", _SHA256)
    _check_location(entry)


def _check_location(entry: JsonDict) -> None:
    """Check that an entry has a URL on a server or the name of a file in the package store."""
    _require(entry, "url", _ADDRESS, optional=bool(entry.get("file")))
    _require(entry, "file", _FILE, optional=bool(entry.get("url")))
    if entry.get("url") and not urlsplit(entry["url"]).hostname:
        raise _InvalidLock(f"{entry['name']} has a URL without a host")


def _require(entry: JsonDict, key: str, pattern: re.Pattern[str] | None, *, optional: bool = False) -> None:
    """Raise an error unless a value matches ``pattern``; if ``pattern`` is None, require an integer."""
    value = entry.get(key)
    if value is None and optional:
        return
    is_valid = (
        type(value) is int if pattern is None else isinstance(value, str) and pattern.fullmatch(value) is not None
    )
    if not is_valid:
        raise _InvalidLock(f"invalid {key} of {str(entry.get('name', 'python'))[:80]!r}: {str(value)[:80]!r}")
