"""User settings: what the user allows for all projects.

They are stored in the data folder and never read from a project. ``settings.json`` maps the keys of
``KEYS`` to lists of strings.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from .errors import HistoryError, UnknownName, UsageError
from .paths import UserPaths
from .remote.shared.file_lock import wait_for_lock
from .remote.shared.folder_tree import NEW
from .remote.shared.shell_variables import is_secret_name
from .remote.shared.untrusted_json import parse_json

_LARGEST = 1 << 20


@dataclass(frozen=True)
class Settings:
    """Normalized values of ``settings.json``."""

    allowed_builds: frozenset[str] = frozenset()
    index_hosts: frozenset[str] = frozenset()
    package_folders: frozenset[str] = frozenset()
    pass_environment: frozenset[str] = frozenset()


@dataclass(frozen=True)
class SettingKey:
    """Key of a setting: its meaning, and how its values are checked and normalized."""

    name: str
    field: str
    summary: str
    normalize: Callable[[str], str]


def package_name(text: str) -> str:
    """Normalize a package name according to PEP 503."""
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,198}[A-Za-z0-9])?", text):
        raise UsageError(f"{text[:80]!r} is not a package name", "for example: mlw settings add allowed-builds pyspark")
    return re.sub(r"[-_.]+", "-", text).lower()


def index_host(text: str) -> str:
    """Normalize a host name, with its port if that is not the default."""
    host, _, port = text.lower().partition(":")
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", host) or (":" in text and not _is_port(port)):
        hint = "for example: mlw settings add index-hosts packages.example.com"
        raise UsageError(f"{text[:80]!r} is not a host name", hint)
    return text.lower()


def package_folder(text: str) -> str:
    """Normalize a folder path. Reject relative paths and the root folder, which would allow too much."""
    path = os.path.normpath(text)
    if not os.path.isabs(text) or "\0" in text or path == os.path.dirname(path):
        hint = "for example: mlw settings add package-folders /srv/wheels"
        raise UsageError(f"{text[:80]!r} is not the full path of a folder", hint)
    return path


def passed_variable(text: str) -> str:
    """Check the name of a variable that projects may read. Secrets are never passed this way."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,199}", text):
        hint = "for example: mlw settings add pass-environment DATA_FOLDER"
        raise UsageError(f"{text[:80]!r} is not a variable name", hint)
    if is_secret_name(text):
        hint = f"pass it to a single run with 'mlw submit --secret {text}'"
        raise UsageError(f"{text} is not allowed: the name suggests a secret", hint)
    return text


def _is_port(text: str) -> bool:
    return re.fullmatch(r"[1-9][0-9]{0,4}", text) is not None and int(text) < 1 << 16


KEYS = {
    key.name: key
    for key in (
        SettingKey("allowed-builds", "allowed_builds", "Packages that may run their build scripts", package_name),
        SettingKey(
            "index-hosts",
            "index_hosts",
            "Package indexes that receive user names and passwords from environment variables",
            index_host,
        ),
        SettingKey(
            "package-folders",
            "package_folders",
            "Folders outside projects from which any project may install packages",
            package_folder,
        ),
        SettingKey(
            "pass-environment",
            "pass_environment",
            "Variables of your shell that any project may pass to its scripts",
            passed_variable,
        ),
    )
}


def settings_file(paths: UserPaths) -> Path:
    return paths.home / "settings.json"


def read_settings(paths: UserPaths) -> Settings:
    """Return the user's settings, or the defaults if there is no file."""
    path = settings_file(paths)
    try:
        with path.open("rb") as file:
            data = parse_json(file.read(_LARGEST))
    except FileNotFoundError:
        return Settings()
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error
    settings = Settings()
    for key in KEYS.values():
        values = data.get(key.name, []) if isinstance(data, dict) else None
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise _damaged(path, f"{key.name} is not a list of strings")
        settings = replace(settings, **{key.field: frozenset(key.normalize(value) for value in values)})
    return settings


def add_setting(paths: UserPaths, key: str, value: str) -> bool:
    """Add a value to a key; return whether it is new."""
    return _change(paths, find_key(key), value, present=True)


def remove_setting(paths: UserPaths, key: str, value: str) -> bool:
    """Remove a value from a key; return whether it existed."""
    return _change(paths, find_key(key), value, present=False)


def find_key(name: str) -> SettingKey:
    if name not in KEYS:
        raise UnknownName("setting", name, KEYS)
    return KEYS[name]


def values_of(settings: Settings, key: SettingKey) -> list[str]:
    return sorted(getattr(settings, key.field))


def _change(paths: UserPaths, key: SettingKey, value: str, *, present: bool) -> bool:
    value = key.normalize(value)
    with _locked(paths):
        settings = read_settings(paths)
        values = frozenset(values_of(settings, key))
        changed = values | {value} if present else values - {value}
        if changed != values:
            _write(settings_file(paths), replace(settings, **{key.field: changed}))
    return changed != values


@contextmanager
def _locked(paths: UserPaths) -> Iterator[None]:
    """Lock the settings, so that no value is lost when two commands change them at the same time."""
    handle = os.open(paths.home / "settings.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        wait_for_lock(handle)
        yield
    finally:
        os.close(handle)


def _write(path: Path, settings: Settings) -> None:
    data: Mapping[str, list[str]] = {key.name: values_of(settings, key) for key in KEYS.values()}
    part = path.with_name(f".{path.name}-{os.urandom(6).hex()}")
    try:
        with open(os.open(part, NEW, 0o600), "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        hint = "set MLW_HOME to a writable folder"
        raise HistoryError(f"cannot write {path}: {error.strerror}", hint) from error


def _damaged(path: Path, reason: object) -> HistoryError:
    # Falling back to the defaults would hide that the user's permissions are not in effect.
    return HistoryError(f"cannot read {path}: {reason}", "fix the file, or delete it to use the defaults")
