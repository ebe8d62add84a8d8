"""Who holds a GPU on this machine, whichever user it is: an abstract socket with its UUID in the name.

Only one process can bind a name, and the kernel frees it on any death. A second socket beside it says whose it is:
everybody may read the names in /proc/net/unix.
"""

from __future__ import annotations

import os
import socket

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

_PREFIX = "mlw-gpu-"
_LONGEST = 100  # bytes of a socket's name; the kernel takes 107
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


class Held:
    """GPUs that this process holds until it lets go of them or dies."""

    def __init__(self) -> None:
        self._sockets: Dict[str, List[socket.socket]] = {}

    @property
    def uuids(self) -> List[str]:
        return list(self._sockets)

    def descriptors(self) -> List[int]:
        """For the launcher, which goes on holding them should we be killed."""
        return [one.fileno() for pair in self._sockets.values() for one in pair]

    def take(self, uuids: List[str], run_id: str) -> Optional[str]:
        """All of them, or none and the UUID of the first that somebody else has."""
        for uuid in uuids:
            if not self.add(uuid, run_id):
                self.release()
                return uuid
        return None

    def add(self, uuid: str, run_id: str) -> bool:
        """One more; False if somebody else has it."""
        if uuid in self._sockets:
            return True
        lock = _bound(_PREFIX + uuid)
        if lock is None:
            return False
        label = _bound(("%s%s/%d/%s" % (_PREFIX, uuid, os.getuid(), run_id))[:_LONGEST])
        self._sockets[uuid] = [lock, label] if label else [lock]
        return True

    def release(self) -> None:
        for pair in self._sockets.values():
            for one in pair:
                one.close()
        self._sockets.clear()


def _bound(name: str) -> Optional[socket.socket]:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)  # never listened at: nobody can connect to it
    try:
        made.bind("\0" + name)
        return made
    except OSError:
        made.close()
        return None


def holders() -> Dict[str, Tuple[Optional[int], Optional[str]]]:
    """UUID → uid and run id of who holds it, as far as they are told."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
            return read_holders(file.read())
    except OSError:
        return {}


def read_holders(text: str) -> Dict[str, Tuple[Optional[int], Optional[str]]]:
    """From the kernel's list of sockets. Anybody can bind such a name, so what it says is looked at closely."""
    found: Dict[str, Tuple[Optional[int], Optional[str]]] = {}
    told: Dict[str, Tuple[Optional[int], Optional[str]]] = {}
    for line in text.splitlines():
        at = line.find("@" + _PREFIX)
        if at < 0:
            continue
        uuid, _, rest = line[at + 1 + len(_PREFIX) :].strip().partition("/")
        if not rest:
            found.setdefault(uuid, (None, None))
            continue
        uid, _, run_id = rest.partition("/")
        if uid.isascii() and uid.isdigit() and run_id and _LETTERS.issuperset(run_id):
            told[uuid] = (int(uid), run_id)
    return {uuid: told.get(uuid, nobody) for uuid, nobody in found.items()}
