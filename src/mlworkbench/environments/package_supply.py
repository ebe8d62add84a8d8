"""Packages that mlw uploads to targets: local files, and packages that require a password.

A target without network access gets all packages. Packages are stored by their SHA-256, as on the
target, so that a resumed submit finds them again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..errors import NotFetched, SolveError
from ..hosts.package_upload import Package
from ..hosts.replies import Reply
from ..model import JsonDict
from ..remote.environments import build_tools
from ..remote.environments.build_tools import NoEnvironment, fetch, get_package, store_package
from ..remote.environments.missing_packages import python_archive
from ..remote.shared.layout import Root
from ..remote.shared.network_errors import CHECK_CONNECTION, NOT_FETCHED
from .credentials import Credentials, credentials_in, headers_for
from .dependencies import Dependencies
from .index_variables import SecretVariables
from .local_files import digest_of
from .mirrors import is_user_address, mirror_credentials
from .package_sources import indexes_of, is_remote, keyring_filler
from .solve import SolveResult

_WORKERS = 8


def store_packages(
    solved: SolveResult, dependencies: Dependencies, store: Root, environ: Mapping[str, str], root: Path = Path()
) -> None:
    """Store the packages that no target can download. ``root`` is the project folder."""
    secrets = SecretVariables.from_environ(environ)
    try:
        for sha256, path in solved.files.items():
            store_package(store, sha256, str(path))
        private = [entry for entry in _entries(solved.lock) if entry.get("private")]
        missing = [entry for entry in private if not os.path.isfile(store.package(str(entry["sha256"])))]
        if missing:
            indexes = indexes_of(dependencies, environ, root)
            addresses = [
                *indexes.addresses(),
                *dependencies.channels,
                *(entry.url for entry in dependencies.pip if entry.url),
            ]
            fill = keyring_filler(environ, root)
            filled = [
                {**entry, "url": secrets.fill(str(entry["url"]))} if entry.get("url") else entry for entry in missing
            ]
            _fetch(filled, store, credentials_in(map(fill, addresses)), environ)
    except NoEnvironment as error:
        raise _to_solve_error(error, secrets.hide) from None
    except OSError as error:
        raise SolveError(f"cannot store a package in {store.packages}: {error.strerror}") from error


def collect_packages(lock: Mapping[str, Any], reply: Mapping[str, Any], store: Root) -> dict[str, Package]:
    """Return the packages that a target lacks, as name on the target → local file.

    The reply is untrusted, so only packages in the lock are sent.
    """
    digests = set(Reply("the target", reply).texts("digests"))
    entries = {str(entry["sha256"]): entry for entry in _entries(lock) if str(entry["sha256"]) in digests}
    missing = [entry for sha256, entry in entries.items() if not os.path.isfile(store.package(sha256))]
    _require_tools(entry for entry in missing if entry in lock.get("tools", ()) and not entry.get("url"))
    try:
        _fetch(missing, store, {}, os.environ)
        packages = {sha256: Package(sha256, Path(store.package(sha256))) for sha256 in entries}
        if reply.get("python") and lock["python"].get("source") == "uv":
            path = _python_archive(lock, store, Reply("the target", reply).text("refused"))
            packages[f"pythons/{path.name}"] = Package(digest_of(path), path)
    except NoEnvironment as error:
        raise _to_solve_error(error) from None
    return packages


def _require_tools(missing: Iterable[JsonDict]) -> None:
    for tool in missing:
        pin = f"{tool['name']}=={tool['version']}"
        raise SolveError(
            f"the target needs {pin}, which is neither on your package index nor installed with mlw",
            f"run 'pip install {pin}', or set PIP_INDEX_URL to an index that has {tool['file']}",
            more="index-not-reached",
        )


def _entries(lock: Mapping[str, Any]) -> list[JsonDict]:
    return [entry for entry in (*lock["conda"], *lock["pip"], *lock.get("tools", ())) if entry.get("sha256")]


def _fetch(entries: Iterable[JsonDict], store: Root, credentials: Credentials, environ: Mapping[str, str]) -> None:
    with ThreadPoolExecutor(_WORKERS) as pool:
        list(
            pool.map(
                lambda entry: get_package(store, entry, headers_for(str(entry.get("url")), credentials, environ)),
                entries,
            )
        )


def _python_archive(lock: Mapping[str, Any], store: Root, refused: str) -> Path:
    """Return the path of a Python archive. ``refused`` is the SHA-256 of an archive to download again."""
    path = Path(python_archive(store, dict(lock["python"])))
    if refused and path.is_file() and digest_of(path) == refused:
        path.unlink()
    try:
        return _fetch_archive(lock["python"], path)
    except build_tools.NotFetched as error:
        raise build_tools.python_not_fetched(dict(lock), error.why) from None


def _fetch_archive(python: Mapping[str, Any], path: Path) -> Path:
    """Download a Python archive unless it is already stored.

    uv provides the URL but not the digest, which it verifies when it unpacks the archive. A digest in
    the user's list is verified here as well.
    """
    url = str(python["url"])
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = f"{path}.{os.urandom(4).hex()}.part"
        headers = headers_for(url, mirror_credentials(os.environ), os.environ)
        try:
            # A lock may be untrusted and must not refer to local files; the user's settings may.
            local = not is_remote(url) and is_user_address(url, os.environ)
            listed = (python.get("listed") or {}).get("sha256")
            if fetch(url, temporary, headers, local=local) != listed and listed:
                raise NoEnvironment(f"SHA-256 of {url} does not match your list of Python versions")
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    return path


def _to_solve_error(error: NoEnvironment, hide: Callable[[str], str] = str) -> SolveError:
    """Convert a download error to a SolveError. ``hide`` removes passwords from a string."""
    if isinstance(error, build_tools.NotFetched):
        message = f"{error.what} cannot be fetched from this machine ({error.why})"
        return NotFetched(hide(message), CHECK_CONNECTION, more="index-not-reached")
    failure = error.failure
    message, hint = hide(failure["message"]), hide(failure["hint"]) if failure["hint"] else None
    if failure["code"] == NOT_FETCHED:
        return NotFetched(message, hint, more=failure["explain"])
    return SolveError(message, hint, more="index-not-reached")
