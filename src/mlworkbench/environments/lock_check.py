"""Check a lock that comes out of a run's record: ``--locked`` must not install or start anything but packages.

Records of runs can be written by hand, and those of other machines are taken in from targets. So a lock is input like
any other: its texts become paths, addresses, and lines of requirements.
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
_WORD = re.compile(r"[A-Za-z0-9_.+!-]+")  # versions, builds, and keys of uv's Pythons
_FILE = re.compile(r"[A-Za-z0-9_][^/\\\s${}]*")
_ADDRESS = re.compile(r"https?://[^\s\\]+")
_FOLDER = re.compile(r"(?!/)(?!(?:.*/)?\.\.(?:/|\Z))[^\s\\${}]+")
_LIBC = re.compile(r"musl|\d+\.\d+")
_KEYS = ("kind", "format", "platform", "glibc", "cuda", "python", "conda", "pip", "instead", "built_in", "digest")
_PYTHON = ("source", "version", "key", "url", "path")  # the rest comes from the user's settings of today


class _Invalid(Exception):
    """What is wrong, in words that follow "the lock of that run"."""


def checked_lock(lock: Mapping[str, Any], *, contained: bool) -> JsonDict:
    """The lock with what an environment is made of, nothing else. Raises ConfigError."""
    hint = "omit --locked to resolve the packages again"
    python = lock.get("python")
    if contained and isinstance(python, dict) and python.get("source") == "host":
        raise ConfigError(
            f"the environment of that run is based on {str(python.get('path'))[:200]!r}, a Python of its host, which"
            " containers cannot use",
            hint,
        )
    known = {key: lock[key] for key in _KEYS if key in lock}
    if isinstance(python, dict):
        known["python"] = {key: python[key] for key in _PYTHON if key in python}
    try:
        _check(known)
        if digest_of(known) != known["digest"]:
            raise _Invalid("the digest does not match the packages")
    except (_Invalid, SolveError) as error:
        raise ConfigError(f"the lock file of that run is not valid: {error}", hint) from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise ConfigError("the lock file of that run is not valid: it is incomplete", hint) from None
    return known


def _check(lock: JsonDict) -> None:
    if lock["format"] != FORMAT:
        raise _Invalid("it has the format of another version of ML Workbench")
    _require(lock, "glibc", _LIBC, optional=True)
    _require(lock, "cuda", _WORD, optional=True)
    _python(lock["python"])
    for name, check in (("conda", _conda), ("pip", _pip)):
        if not isinstance(lock[name], list):
            raise _Invalid(f"{name} is not a list")
        _each(lock[name], check)
    there = lock.get("instead")
    if there is not None:
        _require(there, "version", _WORD)
        _require(there, "file", _FOLDER, optional=True)


def _each(entries: list[Any], check: Callable[[JsonDict], None]) -> None:
    for entry in entries:
        if not isinstance(entry, dict):
            raise _Invalid("a package is not a table")
        _require(entry, "name", _NAME)
        _require(entry, "size", None, optional=True)
        check(entry)


def _python(python: JsonDict) -> None:
    _require(python, "version", _WORD)
    source = python["source"]
    if source == "uv":
        _require(python, "key", _WORD)
        _require(python, "url", re.compile(r"[^\s\\]+/[A-Za-z0-9_][^/\s\\]*"))
    elif source == "host":
        _require(python, "path", re.compile(r"/[^\0\n\r]+"))
    elif source != "conda":
        raise _Invalid(f"unknown source of Python: {str(source)[:40]!r}")


def _conda(entry: JsonDict) -> None:
    for name in ("version", "build", "subdir"):
        _require(entry, name, _WORD)
    _require(entry, "sha256", _SHA256, optional=bool(entry.get("md5")))
    _place(entry)
    if not all(isinstance(one, str) for one in entry["depends"]):
        raise _Invalid(f"{entry['name']} has a dependency that is not a package")


def _pip(entry: JsonDict) -> None:
    _require(entry, "version", _WORD, optional=True)
    if entry.get("git"):
        check_repository(entry["name"], str(entry["git"]))
        _require(entry, "git", re.compile(r"[A-Za-z][^\s\\${}]+"))
        _require(entry, "commit", _COMMIT)
        _require(entry, "folder", _FOLDER, optional=True)
        return
    _require(entry, "sha256", _SHA256)
    _place(entry)


def _place(entry: JsonDict) -> None:
    """An address on a server, or the name of a file that is in the store of packages."""
    _require(entry, "url", _ADDRESS, optional=bool(entry.get("file")))
    _require(entry, "file", _FILE, optional=bool(entry.get("url")))
    if entry.get("url") and not urlsplit(entry["url"]).hostname:
        raise _Invalid(f"{entry['name']} has a URL without a host")


def _require(entry: JsonDict, key: str, form: re.Pattern[str] | None, *, optional: bool = False) -> None:
    """``form`` None: a whole number."""
    value = entry.get(key)
    if value is None and optional:
        return
    right = type(value) is int if form is None else isinstance(value, str) and form.fullmatch(value) is not None
    if not right:
        raise _Invalid(f"invalid {key} of {str(entry.get('name', 'python'))[:80]!r}: {str(value)[:80]!r}")
