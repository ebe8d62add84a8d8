"""What a build here lacks: packages that only the client has, or all of them where no way leads to where they are."""

from __future__ import annotations

import os
import re
import socket
import threading
import urllib.parse
import urllib.request

from ..folder import Root
from ..tree import make_private, remove
from .environment import note_of, prefix_of, python_home
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
    wanted = [one for one in _entries(root, lock) if not _is_here(root.package(str(one["sha256"])))]
    python = _wants_python(root, lock)
    if not everything:
        addresses = [one.get("url") for one in wanted] + [lock["python"].get("url") if python else None]
        everything = not can_reach({_place(str(one)) for one in addresses if one})
    if not everything:
        wanted = [one for one in wanted if one.get("private") or not one.get("url")]
    digests = [str(one["sha256"]) for one in wanted]
    python = python and everything
    return {"digests": digests, "python": python} if digests or python else None


def _entries(root: Root, lock: Lock) -> "List[Dict[str, Any]]":
    tools = [one for one in lock.get("tools", []) if not is_provided(root, one)]
    return [one for one in [*lock["conda"], *lock["pip"], *tools] if one.get("sha256")]


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


def incoming(root: Root) -> Root:
    """Where packages are while they come: in the form of a store, beside the code's own."""
    make_private(root.packages)
    return Root(os.path.join(root.packages, "incoming"))


def keep(root: Root, digest: str, files: "Iterable[Tuple[str, str]]") -> None:
    """Packages came as the files of a snapshot do: (name, digest) each; from now on they are packages."""
    come = incoming(root)
    for name, sha256 in files:
        if not _NAME.fullmatch(name):
            raise ValueError("%a is not a package" % name[:80])
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


def can_reach(places: "Set[Tuple[str, int]]") -> bool:
    """Whether somebody answers at all of them. Through a proxy only the proxy knows, and a build will tell."""
    if not places or urllib.request.getproxies():
        return True
    answered: List[bool] = []

    def knock(place: "Tuple[str, int]") -> None:
        try:
            socket.create_connection(place, PATIENCE).close()
        except OSError:
            return
        answered.append(True)

    # A name that nobody resolves can take longer than any patience of a socket.
    threads = [threading.Thread(target=knock, args=(place,), daemon=True) for place in places]
    for one in threads:
        one.start()
    for one in threads:
        one.join(PATIENCE + 1.0)
    return len(answered) == len(places)
