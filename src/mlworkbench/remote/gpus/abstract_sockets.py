"""List the abstract sockets of this machine with their owners.

The list comes from netlink (sock_diag, Linux 3.3; owners since 5.3). /proc/net/unix does not show owners, and a
socket whose name contains a line break appears there as several sockets with arbitrary names.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct

from ..shared.open_files import open_files

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
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
_TIMEOUT = 2.0  # seconds; the kernel usually responds at once
_MAX_CACHED_PIDS = 64
_MAX_OPEN_FILES = 10000  # maximum checked per process

_pid_cache: "Dict[int, int]" = {}  # inode → pid; 0: no process was found


class AbstractSocket:
    """An abstract socket: name without the leading NUL, inode, and user ID if the kernel reports it."""

    def __init__(self, name: str, uid: Optional[int], inode: int) -> None:
        self.name = name
        self.uid = uid
        self.inode = inode


def list_abstract_sockets(prefix: str) -> List[AbstractSocket]:
    """Return the sockets whose names start with ``prefix``."""
    start = b"\0" + prefix.encode("ascii")
    try:
        return [
            AbstractSocket(name[1:].decode("utf-8", "replace"), uid, inode)
            for name, uid, inode in _dump_sockets()
            if name.startswith(start)
        ]
    except (OSError, ValueError, struct.error):  # a kernel without sock_diag, or a sandbox that forbids it
        return _read_proc(prefix)


def _dump_sockets() -> "Iterator[Tuple[bytes, Optional[int], int]]":
    request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, _ALL, 0, _SHOW_NAME | _SHOW_UID, _ALL, _ALL)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as netlink:
        netlink.settimeout(_TIMEOUT)
        header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
        netlink.sendto(header + request, (0, 0))
        while True:
            data, sender = netlink.recvfrom(1 << 16)
            if sender[0] != 0:
                continue  # not from the kernel
            offset = 0
            while offset + _HEADER.size <= len(data):
                length, kind = _HEADER.unpack_from(data, offset)[:2]
                if kind == _DONE:
                    return
                if kind == _ERROR or length < _HEADER.size:
                    raise OSError("the kernel does not list its sockets")
                if kind == _SOCK_DIAG_BY_FAMILY:
                    yield _parse_message(data[offset + _HEADER.size : offset + length])
                offset += (length + 3) & ~3


def _parse_message(message: bytes) -> "Tuple[bytes, Optional[int], int]":
    inode = _SOCKET.unpack_from(message, 0)[3]
    name, uid = b"", None
    offset = _SOCKET.size
    while offset + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, offset)
        value = message[offset + _ATTRIBUTE.size : offset + length]
        if kind == _NAME:
            name = value
        elif kind == _UID:
            (uid,) = struct.unpack("=I", value)
        offset += max(_ATTRIBUTE.size, (length + 3) & ~3)
    return name, uid, inode


def _read_proc(prefix: str) -> List[AbstractSocket]:
    """Return the sockets that /proc/net/unix lists. They have only names, which are not trustworthy."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    parts = [line.partition("@" + prefix) for line in lines]
    return [AbstractSocket(prefix + rest.strip(), None, 0) for _, separator, rest in parts if separator]


def find_pid(inode: int, uid: Optional[int]) -> Optional[int]:
    """Return the process that has this socket open, or None if this user cannot see it.

    The result is cached, because reading the open files of all processes can take a long time.
    """
    if not inode or uid is None or os.getuid() not in (0, uid):
        return None
    cached = _pid_cache.get(inode)
    if cached is None or (cached and not os.path.exists("/proc/%d" % cached)):
        if len(_pid_cache) >= _MAX_CACHED_PIDS:
            _pid_cache.clear()
        pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
        cached = _pid_cache[inode] = next((pid for pid in pids if _has_socket(pid, inode)), 0)
    return cached or None


def _has_socket(pid: int, inode: int) -> bool:
    target = "socket:[%d]" % inode
    return target in itertools.islice(open_files(pid), _MAX_OPEN_FILES)
