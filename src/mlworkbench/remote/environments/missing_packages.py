"""Packages that a build on this machine lacks.

These are the packages that only the client has, or all packages if servers are unreachable.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import urllib.parse
import urllib.request

from ..run_reader import read_regular_file
from ..shared.environment_layout import prefix_of, python_home
from ..shared.folder_tree import make_private, remove
from ..shared.layout import Root
from .build_tools import is_provided
from .environment_state import record_path

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

    Lock = Dict[str, Any]

TIMEOUT = 4.0
_FILE_NAME = re.compile(r"[0-9a-f]{64}|pythons/[A-Za-z0-9._+-]+")


def find_missing(root: Root, lock: Lock, everything: bool = False) -> Optional[Dict[str, Any]]:
    """Return missing ``digests`` and whether the ``python`` archive is missing; None if neither is.

    ``everything``: the client has detected that this machine cannot download files.
    """
    if os.path.exists(record_path(prefix_of(root, lock))):
        return None
    python = _needs_python(root, lock)
    client_only = python and _is_client_only(lock["python"])
    packages = _missing(root, [*lock["conda"], *lock["pip"]])
    # Tools are checked separately, because they are on the user's index. Packages may be on another index, and
    # possibly only one of the two is reachable.
    tools = _missing(root, [entry for entry in lock.get("tools", []) if not is_provided(root, entry)])
    addresses = [str(lock["python"]["url"])] if python and not client_only else []
    package_servers, tool_servers = _servers_of(packages, addresses), _servers_of(tools)
    reachable_servers = set() if everything else find_reachable(package_servers | tool_servers)
    is_unreachable = everything or not package_servers <= reachable_servers
    needed = packages if is_unreachable else _client_only(packages)
    needed = needed + (tools if everything or not tool_servers <= reachable_servers else _client_only(tools))
    digests = [str(entry["sha256"]) for entry in needed]
    python = client_only or (python and is_unreachable)
    if not digests and not python:
        return None
    result: Dict[str, Any] = {"digests": digests, "python": python}
    rejected = read_regular_file(rejection_path(root, lock["python"]), 0, 64) if python else b""
    return dict(result, refused=rejected.decode("ascii", "replace")) if rejected else result


def _is_client_only(python: "Dict[str, Any]") -> bool:
    """Return whether only the client can fetch Python, with a password or from a local folder."""
    return bool(python.get("private")) or not str(python["url"]).startswith(("http://", "https://"))


def _missing(root: Root, entries: "List[Dict[str, Any]]") -> "List[Dict[str, Any]]":
    return [entry for entry in entries if entry.get("sha256") and not _is_stored(root.package(str(entry["sha256"])))]


def _client_only(entries: "List[Dict[str, Any]]") -> "List[Dict[str, Any]]":
    """Return the entries that only the client can fetch."""
    return [entry for entry in entries if entry.get("private") or not entry.get("url")]


def _servers_of(entries: "List[Dict[str, Any]]", extra: "Iterable[str]" = ()) -> "Set[Tuple[str, int]]":
    urls = [str(item["url"]) for item in entries if item.get("url") and "${" not in str(item["url"])]
    return {_server_of(item) for item in [*urls, *extra]}  # only the client can expand URLs with ${…}


def _is_stored(package: str) -> bool:
    """Return whether a package is stored.

    Its modification time is updated, so that it is not removed before the build.
    """
    try:
        os.utime(package)
    except FileNotFoundError:
        return False
    return True


def _needs_python(root: Root, lock: Lock) -> bool:
    home = python_home(root, lock)
    return (
        bool(home)
        and not os.path.exists("%s.ready" % home)
        and not os.path.exists(python_archive(root, lock["python"]))
    )


def python_archive(root: Root, python: Dict[str, Any]) -> str:
    """Return the path of the uploaded archive of a Python interpreter."""
    return os.path.join(root.packages, "pythons", str(python["url"]).rsplit("/", 1)[1].replace("%2B", "+"))


def rejection_path(root: Root, python: Dict[str, Any]) -> str:
    """Return the path of the file that contains the SHA-256 of an unusable uploaded archive."""
    return python_archive(root, python) + ".refused"


def incoming_store(root: Root) -> Root:
    """Return the store for packages during their upload, which is separate from the store for code."""
    make_private(root.packages)
    return Root(os.path.join(root.packages, "incoming"))


def store_uploaded(root: Root, digest: str, files: "Iterable[Tuple[str, str]]") -> None:
    """Move uploaded files, given as (name, digest), from the incoming store to the packages."""
    store = incoming_store(root)
    for name, sha256 in files:
        if not _FILE_NAME.fullmatch(name):
            raise ValueError("invalid package file name %a" % name[:80])
        target = os.path.join(root.packages, *name.split("/"))
        make_private(os.path.dirname(target))
        try:
            os.rename(store.blob(sha256), target)
        except FileNotFoundError:
            if not os.path.exists(target):  # otherwise another client uploaded it at the same time
                raise
    for end in (".json", ".checked"):
        remove(os.path.join(store.snapshots, digest + end))


# -- network -------------------------------------------------------------------------------------------


def _server_of(address: str) -> "Tuple[str, int]":
    parts = urllib.parse.urlsplit(address)
    return parts.hostname or "", parts.port or {"http": 80}.get(parts.scheme, 443)


def find_reachable(servers: "Set[Tuple[str, int]]") -> "Set[Tuple[str, int]]":
    """Return the servers that accept a connection.

    Behind a proxy, return all of them, because only the build can find out.
    """
    if not servers or urllib.request.getproxies():
        return set(servers)
    responding: List[Tuple[str, int]] = []

    def connect(server: "Tuple[str, int]") -> None:
        try:
            socket.create_connection(server, TIMEOUT).close()
        except OSError:
            return
        responding.append(server)

    # Threads, because resolving an unknown name can take longer than the socket timeout.
    threads = [threading.Thread(target=connect, args=(server,), daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT + 1.0)
    return set(responding)
