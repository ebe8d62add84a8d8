"""The user at the other end of a local TCP connection, from the kernel's table of sockets (Linux only).

Cookies ignore ports, so a session can leak to a server of another user on this machine. The owner of the peer's socket
cannot be faked: the kernel records it when the socket is created.

The kernel is asked over netlink (sock_diag) for one exact pair of addresses, which takes the same time however many
sockets there are. /proc/net/tcp holds the same facts, but each reading of it walks through all sockets of the machine:
a flood of connections would stall the server.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
import sys
from dataclasses import dataclass

from ..errors import UsageError

SUPPORTED = sys.platform == "linux"
ROOT = 0

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLMSG_ERROR = 2
_NLM_F_REQUEST = 1
_TCP_LISTEN = 10
_ALL_STATES = 0xFFFFFFFF
_NO_COOKIE = 0xFFFFFFFF
_LARGEST_REPLY = 16 * 1024
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence number, port id
_REQUEST = struct.Struct("=BBBxI")  # inet_diag_req_v2 before the addresses: family, protocol, extensions, states
_PORTS = struct.Struct("!HH")
_INTERFACE_AND_COOKIE = struct.Struct("=III")
_REPLY = struct.Struct("=BBxx4s16s16s12x12xII")  # inet_diag_msg: family, state, ports, addresses, …, uid, inode

Endpoint = tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]


@dataclass(frozen=True)
class Owner:
    """Who holds a socket."""

    uid: int
    inode: int  # 0 if no process holds it any more; the kernel then reports root, whoever it was

    def may_connect(self, own_uid: int) -> bool:
        """The server's own user, or root: forwarders may run as root, and nothing can be kept from root anyway."""
        return self.inode != 0 and self.uid in (own_uid, ROOT)


def endpoint(address: tuple[str, int]) -> Endpoint:
    """An IPv4 address that is written as an IPv6 one (``::ffff:127.0.0.1``) becomes an IPv4 address."""
    found = ipaddress.ip_address(address[0].partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found, address[1]


def is_loopback(address: tuple[str, int]) -> bool:
    return endpoint(address)[0].is_loopback


class SocketTable:
    """The TCP sockets of this network namespace. Holds one descriptor, so that a lookup never needs a new one."""

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "sock_diag exists on Linux only")
        self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
        self._netlink.setblocking(False)  # the kernel has replied when send() returns
        self._sequence = 0

    def close(self) -> None:
        self._netlink.close()

    def owner(self, local: Endpoint, remote: Endpoint) -> Owner | None:
        """Who holds the socket with these two ends; None if there is none. ``local`` is its own address."""
        if local[0].version != remote[0].version:
            return None
        family = socket.AF_INET if local[0].version == 4 else socket.AF_INET6
        ports, addresses = _PORTS.pack(local[1], remote[1]), (_padded(local), _padded(remote))
        request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, _ALL_STATES)
        request += ports + addresses[0] + addresses[1] + _INTERFACE_AND_COOKIE.pack(0, _NO_COOKIE, _NO_COOKIE)
        reply = self._exchange(request)
        if reply is None:
            return None
        kind, state, found_ports, source, destination, uid, inode = _REPLY.unpack_from(reply)
        # Where no connection fits, the kernel answers with a listening socket of the same port.
        found = (found_ports, _address(kind, source), _address(kind, destination))
        if state == _TCP_LISTEN or found != (ports, local[0], remote[0]):
            return None
        return Owner(uid, inode)

    def _exchange(self, request: bytes) -> bytes | None:
        """The reply's payload; None if there is no such socket."""
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        length = _HEADER.size + len(request)
        header = _HEADER.pack(length, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, self._sequence, 0)
        self._netlink.send(header + request)
        while True:
            reply = self._netlink.recv(_LARGEST_REPLY)
            _, kind, _, sequence, _ = _HEADER.unpack_from(reply)
            if sequence != self._sequence:
                continue  # left from a lookup that failed
            if kind == _SOCK_DIAG_BY_FAMILY:
                return reply[_HEADER.size :]
            code = -struct.unpack_from("=i", reply, _HEADER.size)[0] if kind == _NLMSG_ERROR else errno.EPROTO
            if code == errno.ENOENT:
                return None
            raise OSError(code, os.strerror(code))


def _padded(end: Endpoint) -> bytes:
    return end[0].packed.ljust(16, b"\0")


def _address(family: int, packed: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    if family == socket.AF_INET:
        return ipaddress.IPv4Address(packed[:4])
    found = ipaddress.IPv6Address(packed)
    return found.ipv4_mapped or found


def open_table(required: bool) -> SocketTable | None:
    """The table, after one lookup of a connection of our own has worked: later it would be too late to say so."""
    if not SUPPORTED:
        return None
    try:
        table = SocketTable()
        try:
            _probe(table)
        except OSError:
            table.close()
            raise
    except OSError as error:
        if not required:
            return None
        raise UsageError(
            f"cannot determine which user opens a connection on this machine: {error.strerror}",
            "to accept connections from all users of this machine, add --any-local-user",
            more="ui-not-reached",
        ) from error
    return table


def _probe(table: SocketTable) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        found = table.owner(endpoint(client.getsockname()), endpoint(server.getsockname()))
    if found is None or not found.may_connect(os.getuid()):
        raise OSError(errno.EOPNOTSUPP, f"the kernel reports {found} for a connection of user ID {os.getuid()}")
