"""Find the running server and request a link from it. Nothing is sent to any other process.

A server that was killed leaves ``server.json`` behind. Any user can then listen on its port.
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
from ..remote.shared.atomic_files import read_json
from ..remote.shared.untrusted_json import parse_json
from .cookie_isolation import SecretAddress, Style

_TIMEOUT = 10.0  # seconds
_MAX_RESPONSE = 4096  # maximum bytes of a response
_ADDRESS = re.compile(r"http://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_LISTENING = "0A"  # socket state in /proc/net/tcp


@dataclass(frozen=True)
class RunningServer:
    """Record that a server wrote to ``server.json``."""

    host: str
    port: int
    token: str
    pid: int
    start: int

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def server_record(address: str, token: str) -> dict[str, Any]:
    """Return the content of ``server.json`` for this process."""
    facts = {"pid": os.getpid(), "start": machine.start_time(os.getpid()), "address": address, "token": token}
    return {**machine.identity(), **facts}


def find_server(file: Path) -> RunningServer | None:
    """Return the server in ``file`` if its process is alive: PID, start time, and boot must match."""
    facts = read_json(str(file), "pid", "start", "address", "token") or {}
    match = _ADDRESS.fullmatch(str(facts.get("address")))
    pid, start = facts.get("pid"), facts.get("start")
    if match is None or not isinstance(pid, int) or not isinstance(start, int):
        return None
    if any(facts.get(name) != value for name, value in machine.identity().items()):
        return None
    if machine.start_time(pid) != start:
        return None
    return RunningServer(match[1].strip("[]"), int(match[2]), str(facts["token"]), pid, start)


def running_link(file: Path, secret: SecretAddress, style: Style, port: int | None = None) -> str | None:
    """Request a new link from the running server.

    Return None if there is no server or, if ``port`` is given, if it uses another port.
    """
    server = find_server(file)
    if server is None or (port is not None and port != server.port):
        return None
    try:
        code = secret.extract_code(_request_link(server), server.address)
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None  # the server is shutting down, or the response is invalid
    return secret.link(style, server.address, code) if code else None


def _request_link(server: RunningServer) -> str:
    """Request a link, in any style.

    Connect first, and then check which process is listening: a server holds its port from before it
    writes its file until it ends. If it still holds the port at this point, the connection cannot lead
    to another process.
    """
    with closing(http.client.HTTPConnection(server.host, server.port, timeout=_TIMEOUT)) as connection:
        connection.connect()
        if not _holds_port(server, connection.sock.getpeername()[0]):
            raise ConnectionError(f"port {server.port} is in use by another process")
        connection.request("POST", "/api/link", headers={"Authorization": f"Bearer {server.token}"})
        response = connection.getresponse()
        return str(parse_json(response.read(_MAX_RESPONSE))["link"])


def _holds_port(server: RunningServer, peer: str) -> bool:
    """Return whether the server process listens on the address ``peer``, as the current user."""
    if machine.start_time(server.pid) != server.start:
        return False
    if sys.platform != "linux":
        return True  # there is no readable socket table; assume that a live server holds its port
    held = _socket_inodes(server.pid)
    return any(uid == os.geteuid() and inode in held for uid, inode in _listening_sockets(peer, server.port))


def _socket_inodes(pid: int) -> set[int]:
    """Return the inodes of a process's open sockets."""
    links = []
    with os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            try:
                links.append(os.readlink(entry.path))
            except FileNotFoundError:
                continue  # closed in the meantime
    return {int(link[len("socket:[") : -1]) for link in links if link.startswith("socket:[")}


def _listening_sockets(host: str, port: int) -> Iterator[tuple[int, int]]:
    """Yield the user ID and inode of each socket that accepts connections to this address."""
    inet6 = ":" in host
    name, kind = ("tcp6", socket.AF_INET6) if inet6 else ("tcp", socket.AF_INET)
    packed = socket.inet_pton(kind, host.partition("%")[0])
    addresses = {f"{_kernel_hex(raw)}:{port:04X}" for raw in (packed, bytes(len(packed)))}  # or all interfaces
    with open(f"/proc/net/{name}", encoding="ascii") as table:
        next(table)
        for line in table:
            fields = line.split()
            if fields[1] in addresses and fields[3] == _LISTENING:
                yield int(fields[7]), int(fields[9])


def _kernel_hex(packed: bytes) -> str:
    """Format an address as the kernel does: 32-bit groups, each in native byte order."""
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))
