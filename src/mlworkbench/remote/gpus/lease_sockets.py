"""Exclusive GPU leases across all users of a machine, as abstract sockets with the GPU's UUID in their names.

Only one process can bind a name, and the kernel frees it when the process ends. A second socket, the label, contains
the run ID in its name. Any user can bind such names, even without a run. Therefore, the owner of a lease is the user
that the kernel reports (``abstract_sockets.py``), and a label counts only if the same user owns both sockets.
"""

from __future__ import annotations

import os
import socket

from .abstract_sockets import AbstractSocket, find_pid, list_abstract_sockets

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Dict, List, Optional

_PREFIX = "mlw-gpu-"
_MAX_NAME = 100  # maximum bytes of a socket name; the kernel's limit is 107
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


class HeldGpus:
    """GPUs that this process holds until it releases them or ends."""

    def __init__(self) -> None:
        self._sockets: Dict[str, List[socket.socket]] = {}

    @property
    def uuids(self) -> List[str]:
        return list(self._sockets)

    def descriptors(self) -> List[int]:
        """Return the descriptors. The launcher keeps them open, so the GPUs stay leased if this process is killed."""
        return [sock.fileno() for pair in self._sockets.values() for sock in pair]

    def acquire(self, uuids: List[str], run_id: str) -> Optional[str]:
        """Acquire all GPUs and return None, or acquire none and return the UUID of one that is held."""
        for uuid in uuids:
            if not self.acquire_one(uuid, run_id):
                self.release()
                return uuid
        return None

    def acquire_one(self, uuid: str, run_id: str) -> bool:
        """Acquire one more GPU; return False if another process holds it."""
        if uuid in self._sockets:
            return True
        # Bind the label first: a lock without a label looks like a lease without a run.
        label = _bind(("%s%s/%d/%s" % (_PREFIX, uuid, os.getuid(), run_id))[:_MAX_NAME])
        lock = _bind(_PREFIX + uuid)
        if lock is None:
            if label is not None:
                label.close()
            return False
        self._sockets[uuid] = [lock, label] if label else [lock]
        return True

    def release(self) -> None:
        for pair in self._sockets.values():
            for sock in pair:
                sock.close()
        self._sockets.clear()


def _bind(name: str) -> Optional[socket.socket]:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)  # only its name matters: it never listens
    try:
        sock.bind("\0" + name)
        return sock
    except OSError:
        sock.close()
        return None


class Holder:
    """Holder of a GPU.

    ``run`` is None if the holder is not a run. ``verified`` is true if the kernel reported ``uid``, and
    false if ``uid`` comes from the label.
    """

    def __init__(self, uid: Optional[int], run: Optional[str], verified: bool, inode: int) -> None:
        self.uid = uid
        self.run = run
        self.verified = verified
        self._inode = inode

    def pid(self) -> Optional[int]:
        """Return the PID of the holder, or None if not found. Only root can see processes of other users."""
        return find_pid(self._inode, self.uid)


def list_holders() -> Dict[str, Holder]:
    """Return the holders by UUID."""
    result = match_holders(list_abstract_sockets(_PREFIX))
    if any(holder.run is None for holder in result.values()):
        # Listing is not atomic. Labels are bound before locks, so a second list contains labels that the first missed.
        result.update(
            (uuid, holder) for uuid, holder in match_holders(list_abstract_sockets(_PREFIX)).items() if holder.run
        )
    return result


def match_holders(sockets: List[AbstractSocket]) -> Dict[str, Holder]:
    """Combine locks and labels into holders. Any user can choose the names, so they are validated."""
    locks: Dict[str, AbstractSocket] = {}
    labels: List[AbstractSocket] = []
    for entry in sockets:
        name = entry.name[len(_PREFIX) :]
        if "/" in name:
            labels.append(entry)
        elif name and _NAME_CHARACTERS.issuperset(name):
            locks[name] = entry
    result = {uuid: Holder(entry.uid, None, entry.uid is not None, entry.inode) for uuid, entry in locks.items()}
    for label in labels:
        uuid, uid, run_id = (label.name[len(_PREFIX) :].split("/") + ["", ""])[:3]
        holder = result.get(uuid)
        if holder is None or label.uid != locks[uuid].uid or not (run_id and _NAME_CHARACTERS.issuperset(run_id)):
            continue
        holder.run = run_id
        if not holder.verified and uid.isascii() and uid.isdigit():
            holder.uid = int(uid)
    return result
