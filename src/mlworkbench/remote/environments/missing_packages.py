"""What a build here lacks: packages that only the client has, or all of them where no way leads to where they are."""

from __future__ import annotations

import os
import re
import socket
import threading
import urllib.parse
import urllib.request

from ..serve import read_plain
from ..shared.environment_layout import prefix_of, python_home
from ..shared.layout import Root
from ..shared.tree import make_private, remove
from .environment import note_of
from .tools import is_provided

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

    Lock = Dict[str, Any]

PATIENCE = 4.0
_NAME = re.compile(r"[0-9a-f]{64}|pythons/[A-Za-z0-9._+-]+")


def lacking(root: Root, lock: Lock, everything: bool = False) -> Optional[Dict[str, Any]]:
    """``digests`` of packages, ``python``: whether its archive too; None: a build can do with what is here.

    ``everything``: the client says that this machine cannot fetch by itself.
    """
    if os.path.exists(note_of(prefix_of(root, lock))):
        return None
    python = _wants_python(root, lock)
    sent = python and _is_sent_only(lock["python"])
    packages = _missing(root, [*lock["conda"], *lock["pip"]])
    # Apart: they are on the user's index, the packages may be on another, and a machine may reach only one of these.
    tools = _missing(root, [one for one in lock.get("tools", []) if not is_provided(root, one)])
    addresses = [str(lock["python"]["url"])] if python and not sent else []
    at_packages, at_tools = _places(packages, addresses), _places(tools)
    answered = set() if everything else reachable(at_packages | at_tools)
    closed = everything or not at_packages <= answered
    wanted = packages if closed else _only_sent(packages)
    wanted = wanted + (tools if everything or not at_tools <= answered else _only_sent(tools))
    digests = [str(one["sha256"]) for one in wanted]
    python = sent or (python and closed)
    if not digests and not python:
        return None
    found: Dict[str, Any] = {"digests": digests, "python": python}
    refused = read_plain(refusal_of(root, lock["python"]), 0, 64) if python else b""
    return dict(found, refused=refused.decode("ascii", "replace")) if refused else found


def _is_sent_only(python: "Dict[str, Any]") -> bool:
    """Whether the Python is behind a password, or in a folder of the client."""
    return bool(python.get("private")) or not str(python["url"]).startswith(("http://", "https://"))


def _missing(root: Root, entries: "List[Dict[str, Any]]") -> "List[Dict[str, Any]]":
    return [one for one in entries if one.get("sha256") and not _is_here(root.package(str(one["sha256"])))]


def _only_sent(entries: "List[Dict[str, Any]]") -> "List[Dict[str, Any]]":
    """Those that no machine but the client can fetch."""
    return [one for one in entries if one.get("private") or not one.get("url")]


def _places(entries: "List[Dict[str, Any]]", more: "Iterable[str]" = ()) -> "Set[Tuple[str, int]]":
    fetched = [str(one["url"]) for one in entries if one.get("url") and "${" not in str(one["url"])]
    return {_place(one) for one in [*fetched, *more]}  # without those whose address only the client knows


def _is_here(package: str) -> bool:
    """If so, it was wanted just now: nobody removes it before the build."""
    try:
        os.utime(package)
    except FileNotFoundError:
        return False
    return True


def _wants_python(root: Root, lock: Lock) -> bool:
    home = python_home(root, lock)
    return bool(home) and not os.path.exists("%s.ready" % home) and not os.path.exists(archive_of(root, lock["python"]))


def archive_of(root: Root, python: Dict[str, Any]) -> str:
    """Where the archive of a Python lies if it was sent along."""
    return os.path.join(root.packages, "pythons", str(python["url"]).rsplit("/", 1)[1].replace("%2B", "+"))


def refusal_of(root: Root, python: Dict[str, Any]) -> str:
    """The file with the SHA-256 of an archive that was sent along and was of no use."""
    return archive_of(root, python) + ".refused"


def incoming(root: Root) -> Root:
    """Where packages are while they come: in the form of a store, beside the code's own."""
    make_private(root.packages)
    return Root(os.path.join(root.packages, "incoming"))


def keep(root: Root, digest: str, files: "Iterable[Tuple[str, str]]") -> None:
    """Packages came as the files of a snapshot do: (name, digest) each; from now on they are packages."""
    come = incoming(root)
    for name, sha256 in files:
        if not _NAME.fullmatch(name):
            raise ValueError("invalid package file name %a" % name[:80])
        target = os.path.join(root.packages, *name.split("/"))
        make_private(os.path.dirname(target))
        try:
            os.rename(come.blob(sha256), target)
        except FileNotFoundError:
            if not os.path.exists(target):  # else another client has brought it at the same time
                raise
    for end in (".json", ".checked"):
        remove(os.path.join(come.snapshots, digest + end))


# -- the way to the internet ---------------------------------------------------------------------------


def _place(address: str) -> "Tuple[str, int]":
    parts = urllib.parse.urlsplit(address)
    return parts.hostname or "", parts.port or {"http": 80}.get(parts.scheme, 443)


def reachable(places: "Set[Tuple[str, int]]") -> "Set[Tuple[str, int]]":
    """Hosts that accept a connection. Behind a proxy this is not known before the build."""
    if not places or urllib.request.getproxies():
        return set(places)
    answered: List[Tuple[str, int]] = []

    def knock(place: "Tuple[str, int]") -> None:
        try:
            socket.create_connection(place, PATIENCE).close()
        except OSError:
            return
        answered.append(place)

    # A name that nobody resolves can take longer than any patience of a socket.
    threads = [threading.Thread(target=knock, args=(place,), daemon=True) for place in places]
    for one in threads:
        one.start()
    for one in threads:
        one.join(PATIENCE + 1.0)
    return set(answered)
