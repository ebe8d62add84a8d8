"""Packages that travel from this machine: files of it, those that want a password, or all for a target without a way.

They lie in the store by their SHA-256, as they do on the target: a submit that is resumed finds them too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..errors import NotFetched, SolveError
from ..hosts.parcel import Package
from ..hosts.replies import Reply
from ..model import JsonDict
from ..remote.environments import tools
from ..remote.environments.supplies import archive_of
from ..remote.environments.tools import NoEnvironment, fetch, get, take_in
from ..remote.shared.layout import Root
from ..remote.shared.network_errors import CHECK_CONNECTION, NOT_FETCHED
from .channels import indexes_of, is_remote, keyring_filler
from .credentials import Credentials, credentials_in, headers_for
from .dependencies import Dependencies
from .local_files import digest_of
from .mirrors import is_own_address, mirror_credentials
from .named_secrets import NamedSecrets
from .solve import Solved

_AT_ONCE = 8


def stock(
    solved: Solved, dependencies: Dependencies, store: Root, environ: Mapping[str, str], root: Path = Path()
) -> None:
    """Put into the store what no target can fetch by itself. ``root``: the project."""
    secrets = NamedSecrets.of(environ)
    try:
        for sha256, path in solved.files.items():
            take_in(store, sha256, str(path))
        private = [one for one in _entries(solved.lock) if one.get("private")]
        missing = [one for one in private if not os.path.isfile(store.package(str(one["sha256"])))]
        if missing:
            indexes = indexes_of(dependencies, environ, root)
            addresses = [*indexes.places(), *dependencies.channels, *(one.url for one in dependencies.pip if one.url)]
            fill = keyring_filler(environ, root)
            filled = [{**one, "url": secrets.fill(str(one["url"]))} if one.get("url") else one for one in missing]
            _fetch(filled, store, credentials_in(map(fill, addresses)), environ)
    except NoEnvironment as error:
        raise _as_solve_error(error, secrets.hide) from None
    except OSError as error:
        raise SolveError(f"cannot store a package in {store.packages}: {error.strerror}") from error


def packages(lock: Mapping[str, Any], lacking: Mapping[str, Any], store: Root) -> dict[str, Package]:
    """What a target says it lacks: name there → file here. It may say anything; only what the lock names is sent."""
    asked = set(Reply("the target", lacking).texts("digests"))
    wanted = {str(one["sha256"]): one for one in _entries(lock) if str(one["sha256"]) in asked}
    missing = [one for sha256, one in wanted.items() if not os.path.isfile(store.package(sha256))]
    _refuse_tools(one for one in missing if one in lock.get("tools", ()) and not one.get("url"))
    try:
        _fetch(missing, store, {}, os.environ)
        found = {sha256: Package(sha256, Path(store.package(sha256))) for sha256 in wanted}
        if lacking.get("python") and lock["python"].get("source") == "uv":
            path = _python(lock, store, Reply("the target", lacking).text("refused"))
            found[f"pythons/{path.name}"] = Package(digest_of(path), path)
    except NoEnvironment as error:
        raise _as_solve_error(error) from None
    return found


def _refuse_tools(missing: Iterable[JsonDict]) -> None:
    for one in missing:
        pin = f"{one['name']}=={one['version']}"
        raise SolveError(
            f"the target needs {pin}, which is neither on your package index nor installed with mlw",
            f"run 'pip install {pin}', or set PIP_INDEX_URL to an index that has {one['file']}",
            more="index-not-reached",
        )


def _entries(lock: Mapping[str, Any]) -> list[JsonDict]:
    return [one for one in (*lock["conda"], *lock["pip"], *lock.get("tools", ())) if one.get("sha256")]


def _fetch(entries: Iterable[JsonDict], store: Root, known: Credentials, environ: Mapping[str, str]) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda one: get(store, one, headers_for(str(one.get("url")), known, environ)), entries))


def _python(lock: Mapping[str, Any], store: Root, refused: str) -> Path:
    """``refused``: SHA-256 of an archive that the target could not use; that one is fetched again."""
    path = Path(archive_of(store, dict(lock["python"])))
    if refused and path.is_file() and digest_of(path) == refused:
        path.unlink()
    try:
        return _archive(lock["python"], path)
    except tools.NotFetched as error:
        raise tools.no_python(dict(lock), error.why) from None


def _archive(python: Mapping[str, Any], path: Path) -> Path:
    """uv tells where its Pythons are and keeps their digests to itself; uv checks them when it unpacks.

    The digests of a list of the user's own are known, and checked here too.
    """
    url = str(python["url"])
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = f"{path}.{os.urandom(4).hex()}.part"
        headers = headers_for(url, mirror_credentials(os.environ), os.environ)
        try:
            # A lock may come from anywhere, and must not name files of this machine; the user may.
            local = not is_remote(url) and is_own_address(url, os.environ)
            listed = (python.get("listed") or {}).get("sha256")
            if fetch(url, part, headers, local=local) != listed and listed:
                raise NoEnvironment(f"SHA-256 of {url} does not match your list of Python versions")
            os.replace(part, path)
        finally:
            Path(part).unlink(missing_ok=True)
    return path


def _as_solve_error(error: NoEnvironment, hide: Callable[[str], str] = str) -> SolveError:
    """What happened here, said of this machine. ``hide`` takes passwords out of a text."""
    if isinstance(error, tools.NotFetched):
        message = f"{error.what} cannot be fetched from this machine ({error.why})"
        return NotFetched(hide(message), CHECK_CONNECTION, more="index-not-reached")
    failure = error.failure
    message, hint = hide(failure["message"]), hide(failure["hint"]) if failure["hint"] else None
    if failure["code"] == NOT_FETCHED:
        return NotFetched(message, hint, more=failure["explain"])
    return SolveError(message, hint, more="index-not-reached")
