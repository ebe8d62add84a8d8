"""Who holds a GPU on this machine, whichever user it is: an abstract socket with its UUID in the name.

Only one process can bind a name, and the kernel frees it on any death. A second socket beside it is the label: it
names the run. Any user can bind either name without a run, so the user is the one that the kernel reports
(``socketlist.py``), and a label counts only if the same user owns both sockets.
"""

from __future__ import annotations

import os
import socket

from .socketlist import Listed, abstract_sockets, pid_of

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Dict, List, Optional

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
        # First the label: a GPU that is held without one would look as if no run held it.
        label = _bound(("%s%s/%d/%s" % (_PREFIX, uuid, os.getuid(), run_id))[:_LONGEST])
        lock = _bound(_PREFIX + uuid)
        if lock is None:
            if label is not None:
                label.close()
            return False
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


class Holder:
    """Who holds a GPU. ``run`` is None where no run does; ``verified``: the kernel reported ``uid``, not the label."""

    def __init__(self, uid: Optional[int], run: Optional[str], verified: bool, inode: int) -> None:
        self.uid = uid
        self.run = run
        self.verified = verified
        self._inode = inode

    def pid(self) -> Optional[int]:
        """The process, where this user may know: that of another user is seen by root only."""
        return pid_of(self._inode, self.uid)


def holders() -> Dict[str, Holder]:
    """UUID → who holds it."""
    found = find_holders(abstract_sockets(_PREFIX))
    if any(one.run is None for one in found.values()):
        # The list is not of one moment, and a label is bound before its lock: a label that was missed is there now.
        found.update((uuid, one) for uuid, one in find_holders(abstract_sockets(_PREFIX)).items() if one.run)
    return found


def find_holders(sockets: List[Listed]) -> Dict[str, Holder]:
    """From a list of sockets. Names are text of any user, so they are validated."""
    locks: Dict[str, Listed] = {}
    labels: List[Listed] = []
    for one in sockets:
        name = one.name[len(_PREFIX) :]
        if "/" in name:
            labels.append(one)
        elif name and _LETTERS.issuperset(name):
            locks[name] = one
    found = {uuid: Holder(one.uid, None, one.uid is not None, one.inode) for uuid, one in locks.items()}
    for label in labels:
        uuid, uid, run_id = (label.name[len(_PREFIX) :].split("/") + ["", ""])[:3]
        holder = found.get(uuid)
        if holder is None or label.uid != locks[uuid].uid or not (run_id and _LETTERS.issuperset(run_id)):
            continue
        holder.run = run_id
        if not holder.verified and uid.isascii() and uid.isdigit():
            holder.uid = int(uid)
    return found
