"""The abstract sockets of this machine with their owners, as the kernel lists them.

Asked through netlink (sock_diag, Linux 3.3; owners since 5.3), because /proc/net/unix names no owners, and a socket
whose name has a line break looks there like several sockets, with any names.
"""

from __future__ import annotations

import os
import socket
import struct

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Tuple

_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_REQUEST_DUMP = 0x301
_ERROR, _DONE = 2, 3
_SHOW_NAME, _SHOW_UID = 0x01, 0x40
_NAME, _UID = 0, 7
_ALL = 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_SOCKET = struct.Struct("=BBBxIII")  # family, type, state, inode, cookie
_PATIENCE = 2.0  # seconds: the kernel answers at once
_KNOWN = 64  # processes that are remembered
_MOST_FILES = 10000  # open files of a process that are read

_pids: "Dict[int, int]" = {}  # inode → process; 0: none was found


class Listed:
    """One socket: name without the leading NUL, user where the kernel reports it, inode."""

    def __init__(self, name: str, uid: Optional[int], inode: int) -> None:
        self.name = name
        self.uid = uid
        self.inode = inode


def abstract_sockets(prefix: str) -> List[Listed]:
    """Those whose names begin so."""
    start = b"\0" + prefix.encode("ascii")
    try:
        return [
            Listed(name[1:].decode("utf-8", "replace"), uid, inode)
            for name, uid, inode in _dump()
            if name.startswith(start)
        ]
    except (OSError, ValueError, struct.error):  # a kernel without the module, or a sandbox that forbids it
        return _from_proc(prefix)


def _dump() -> "Iterator[Tuple[bytes, Optional[int], int]]":
    question = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, _ALL, 0, _SHOW_NAME | _SHOW_UID, _ALL, _ALL)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as asked:
        asked.settimeout(_PATIENCE)
        header = _HEADER.pack(_HEADER.size + len(question), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
        asked.sendto(header + question, (0, 0))
        while True:
            data, sender = asked.recvfrom(1 << 16)
            if sender[0] != 0:
                continue  # not from the kernel
            at = 0
            while at + _HEADER.size <= len(data):
                length, kind = _HEADER.unpack_from(data, at)[:2]
                if kind == _DONE:
                    return
                if kind == _ERROR or length < _HEADER.size:
                    raise OSError("the kernel does not list its sockets")
                if kind == _SOCK_DIAG_BY_FAMILY:
                    yield _parsed(data[at + _HEADER.size : at + length])
                at += (length + 3) & ~3


def _parsed(message: bytes) -> "Tuple[bytes, Optional[int], int]":
    inode = _SOCKET.unpack_from(message, 0)[3]
    name, uid = b"", None
    at = _SOCKET.size
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        value = message[at + _ATTRIBUTE.size : at + length]
        if kind == _NAME:
            name = value
        elif kind == _UID:
            (uid,) = struct.unpack("=I", value)
        at += max(_ATTRIBUTE.size, (length + 3) & ~3)
    return name, uid, inode


def _from_proc(prefix: str) -> List[Listed]:
    """Names only, and not to be relied on."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    found = [line.partition("@" + prefix) for line in lines]
    return [Listed(prefix + rest.strip(), None, 0) for _, mark, rest in found if mark]


def pid_of(inode: int, uid: Optional[int]) -> Optional[int]:
    """The process that has this socket open; None if it is not to be seen by us.

    Looked for once: a process may have opened very many files, so that every look takes long.
    """
    if not inode or uid is None or os.getuid() not in (0, uid):
        return None
    known = _pids.get(inode)
    if known is None or (known and not os.path.exists("/proc/%d" % known)):
        if len(_pids) >= _KNOWN:
            _pids.clear()
        numbers = (int(name) for name in os.listdir("/proc") if name.isdigit())
        known = _pids[inode] = next((pid for pid in numbers if _has(pid, inode)), 0)
    return known or None


def _has(pid: int, inode: int) -> bool:
    wanted = "socket:[%d]" % inode
    folder = "/proc/%d/fd" % pid
    try:
        with os.scandir(folder) as listing:
            for number, entry in enumerate(listing):
                if number >= _MOST_FILES or os.readlink(entry.path) == wanted:
                    return number < _MOST_FILES
    except OSError:
        pass  # it has ended, or is not ours to look at
    return False
