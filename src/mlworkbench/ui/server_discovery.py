"""The server that runs already, and a link from it. Nothing is sent to a process that is not that server.

``server.json`` may be left behind by a server that was killed. Any user may listen on its port since.
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..remote.shared import machine
from ..remote.shared.files import read_json
from ..remote.shared.untrusted import parse_json
from .address import SecretAddress, Style

_PATIENCE = 10.0  # seconds
_LARGEST = 4096  # bytes of an answer
_ADDRESS = re.compile(r"http://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_LISTENING = "0A"  # the state of a socket in /proc/net/tcp


@dataclass(frozen=True)
class Running:
    """What a server has written about itself."""

    host: str
    port: int
    token: str
    pid: int
    start: int

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def note(address: str, token: str) -> dict[str, Any]:
    """The content of ``server.json`` for this process."""
    facts = {"pid": os.getpid(), "start": machine.start_time(os.getpid()), "address": address, "token": token}
    return {**machine.identity(), **facts}


def find(file: Path) -> Running | None:
    """The server of this file, if its process lives: pid, start time and boot are those of the file."""
    facts = read_json(str(file), "pid", "start", "address", "token") or {}
    place = _ADDRESS.fullmatch(str(facts.get("address")))
    pid, start = facts.get("pid"), facts.get("start")
    if place is None or not isinstance(pid, int) or not isinstance(start, int):
        return None
    if any(facts.get(name) != value for name, value in machine.identity().items()):
        return None
    if machine.start_time(pid) != start:
        return None
    return Running(place[1].strip("[]"), int(place[2]), str(facts["token"]), pid, start)


def running_link(file: Path, secret: SecretAddress, style: Style, port: int | None = None) -> str | None:
    """A new link from the server that runs, at this port; None if there is no such server."""
    server = find(file)
    if server is None or (port is not None and port != server.port):
        return None
    try:
        code = secret.code_of(_ask(server), server.address)
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None  # it is ending, or its answer is none of ours
    return secret.link(style, server.address, code) if code else None


def _ask(server: Running) -> str:
    """A link, in whatever style.

    First the connection, then the check of who listens: a server holds its port from before it writes its file until
    it ends. If it still holds the port now, the connection cannot lead to another process.
    """
    with closing(http.client.HTTPConnection(server.host, server.port, timeout=_PATIENCE)) as connection:
        connection.connect()
        if not _holds_port(server, connection.sock.getpeername()[0]):
            raise ConnectionError(f"port {server.port} is in use by another process")
        connection.request("POST", "/api/link", headers={"Authorization": f"Bearer {server.token}"})
        answer = connection.getresponse()
        return str(parse_json(answer.read(_LARGEST))["link"])


def _holds_port(server: Running, peer: str) -> bool:
    """Whether the process of this server, of our user, listens there."""
    if machine.start_time(server.pid) != server.start:
        return False
    if sys.platform != "linux":
        return True  # there is no list of sockets to read; the living process holds its port
    held = _sockets(server.pid)
    return any(uid == os.geteuid() and inode in held for uid, inode in _listening(peer, server.port))


def _sockets(pid: int) -> set[int]:
    """The inodes of the sockets that a process has open."""
    links = []
    with os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            try:
                links.append(os.readlink(entry.path))
            except FileNotFoundError:
                continue  # closed meanwhile
    return {int(link[len("socket:[") : -1]) for link in links if link.startswith("socket:[")}


def _listening(host: str, port: int) -> Iterator[tuple[int, int]]:
    """User id and inode of each socket that takes connections to this address."""
    inet6 = ":" in host
    name, kind = ("tcp6", socket.AF_INET6) if inet6 else ("tcp", socket.AF_INET)
    packed = socket.inet_pton(kind, host.partition("%")[0])
    places = {f"{_words(one)}:{port:04X}" for one in (packed, bytes(len(packed)))}  # itself, or all addresses
    with open(f"/proc/net/{name}", encoding="ascii") as table:
        next(table)
        for line in table:
            fields = line.split()
            if fields[1] in places and fields[3] == _LISTENING:
                yield int(fields[7]), int(fields[9])


def _words(packed: bytes) -> str:
    """As the kernel prints an address: words of 32 bits, each in the byte order of the machine."""
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))
