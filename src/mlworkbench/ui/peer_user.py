"""Look up the user at the other end of a local TCP connection in the kernel's socket table.

This works only on Linux. Browsers ignore ports when sending cookies, so a session can leak to
another user's server on this machine. The owner of the peer's socket cannot be faked: the kernel
records it when the socket is created.

The lookup uses netlink (sock_diag) with one exact pair of addresses, so its duration does not
depend on the number of sockets. /proc/net/tcp contains the same data, but each read iterates over
all sockets of the machine, so a flood of connections would stall the server.
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
    """Owner of a socket."""

    uid: int
    inode: int  # 0 if no process holds the socket anymore; the kernel then reports root for any user

    def may_connect(self, own_uid: int) -> bool:
        """Return whether the owner is the user of the server or root.

        Root may connect because port forwarders may run as root, and root can read everything anyway.
        """
        return self.inode != 0 and self.uid in (own_uid, ROOT)


def endpoint(address: tuple[str, int]) -> Endpoint:
    """Parse an address. An IPv4-mapped IPv6 address (``::ffff:127.0.0.1``) becomes an IPv4 address."""
    host = ipaddress.ip_address(address[0].partition("%")[0])
    mapped = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) else None
    return mapped or host, address[1]


def is_loopback(address: tuple[str, int]) -> bool:
    return endpoint(address)[0].is_loopback


class SocketTable:
    """TCP sockets of this network namespace.

    One descriptor stays open, so that lookups never need a new one.
    """

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "sock_diag exists on Linux only")
        self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
        self._netlink.setblocking(False)  # the kernel has replied when send() returns
        self._sequence = 0

    def close(self) -> None:
        self._netlink.close()

    def owner(self, local: Endpoint, remote: Endpoint) -> Owner | None:
        """Return the owner of the socket with these endpoints, or None. ``local`` is its own address."""
        if local[0].version != remote[0].version:
            return None
        family = socket.AF_INET if local[0].version == 4 else socket.AF_INET6
        ports, addresses = _PORTS.pack(local[1], remote[1]), (_padded(local), _padded(remote))
        request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, _ALL_STATES)
        request += ports + addresses[0] + addresses[1] + _INTERFACE_AND_COOKIE.pack(0, _NO_COOKIE, _NO_COOKIE)
        reply = self._exchange(request)
        if reply is None:
            return None
        kind, state, reply_ports, source, destination, uid, inode = _REPLY.unpack_from(reply)
        # If no connection matches, the kernel returns a listening socket on the same port.
        reply_key = (reply_ports, _address(kind, source), _address(kind, destination))
        if state == _TCP_LISTEN or reply_key != (ports, local[0], remote[0]):
            return None
        return Owner(uid, inode)

    def _exchange(self, request: bytes) -> bytes | None:
        """Send a request and return the payload of the reply, or None if there is no such socket."""
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        length = _HEADER.size + len(request)
        header = _HEADER.pack(length, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, self._sequence, 0)
        self._netlink.send(header + request)
        while True:
            reply = self._netlink.recv(_LARGEST_REPLY)
            _, kind, _, sequence, _ = _HEADER.unpack_from(reply)
            if sequence != self._sequence:
                continue  # reply to an earlier lookup that failed
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
    address = ipaddress.IPv6Address(packed)
    return address.ipv4_mapped or address


def open_table(required: bool) -> SocketTable | None:
    """Return the socket table after a test lookup of our own connection, to detect problems early."""
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
        owner = table.owner(endpoint(client.getsockname()), endpoint(server.getsockname()))
    if owner is None or not owner.may_connect(os.getuid()):
        raise OSError(errno.EOPNOTSUPP, f"the kernel reports {owner} for a connection of user ID {os.getuid()}")
