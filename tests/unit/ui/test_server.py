"""Sockets on which the server listens."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from mlworkbench.errors import UsageError
from mlworkbench.ui.server import PORT, access_policy, listen


def break_ipv6(monkeypatch, *, on_create=None, on_bind=None):
    """Make IPv6 sockets fail as on a machine without IPv6: on creation, or on bind."""

    class Refused(socket.socket):
        def __init__(self, family=-1, *more, **named):
            if family == socket.AF_INET6 and on_create:
                raise OSError(on_create, os.strerror(on_create))
            super().__init__(family, *more, **named)

        def bind(self, address):
            if self.family == socket.AF_INET6 and on_bind:
                raise OSError(on_bind, os.strerror(on_bind))
            super().bind(address)

    monkeypatch.setattr(socket, "socket", Refused)


@pytest.mark.parametrize("error_numbers", [{"on_create": errno.EAFNOSUPPORT}, {"on_bind": errno.EADDRNOTAVAIL}])
def test_machine_without_ipv6(monkeypatch, error_numbers):
    break_ipv6(monkeypatch, **error_numbers)
    listening = listen(None, 0)
    assert [sock.getsockname()[0] for sock in listening.sockets] == ["127.0.0.1"]
    for sock in listening.sockets:
        sock.close()


@pytest.mark.parametrize("error_number", [errno.EACCES, errno.EPERM])
def test_unusable_loopback_address_is_an_error(monkeypatch, error_number):
    """A browser that tries ::1 first would reach another program at that address."""
    break_ipv6(monkeypatch, on_bind=error_number)
    with pytest.raises(UsageError, match="cannot listen on this machine"):
        listen(None, 0)


def test_port_in_use_on_ipv6_is_refused():
    with socket.socket(socket.AF_INET6) as squatter:
        squatter.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        squatter.bind(("::1", 0))
        squatter.listen()
        with pytest.raises(UsageError, match="already in use"):
            listen(None, squatter.getsockname()[1])


def close_and_list_addresses(listening):
    addresses = sorted(sock.getsockname()[0] for sock in listening.sockets)
    for sock in listening.sockets:
        sock.close()
    return addresses


@pytest.mark.parametrize("name", ["localhost", "LocalHost."])
def test_localhost_is_both_loopback_addresses(monkeypatch, name):
    """The hosts file does not matter, because browsers try both addresses."""
    monkeypatch.setattr("socket.getaddrinfo", resolve_names(socket.getaddrinfo))
    listening = listen(name, 0)
    assert close_and_list_addresses(listening) == ["127.0.0.1", "::1"]
    assert f"127.0.0.1:{listening.port}" in access_policy(listening, "").hosts


def resolve_names(resolve, **names):
    """Resolve unknown names to the IPv4 loopback address."""

    def getaddrinfo(host, port, *args, **kwargs):
        addresses = names.get(host.replace(".", "_"), [host if host[0] in "0123456789:" else "127.0.0.1"])
        return [info for address in addresses for info in resolve(address, port, *args, **kwargs)]

    return getaddrinfo


def test_all_addresses_of_a_name_are_used(monkeypatch):
    several = resolve_names(socket.getaddrinfo, box=["127.0.0.2", "::1", "127.0.0.2"], far=["127.0.0.2", "192.0.2.7"])
    monkeypatch.setattr("socket.getaddrinfo", several)
    assert close_and_list_addresses(listen("box", 0)) == ["127.0.0.2", "::1"]
    with pytest.raises(UsageError, match="cannot listen on far"):
        listen("far", 0)


def test_all_interfaces_include_ipv4():
    """The link may contain an IPv4 or an IPv6 address."""
    assert close_and_list_addresses(listen("::", 0)) == ["0.0.0.0", "::"]


def test_random_port():
    """If the secret is in the path, only the port makes the origin of the pages unique."""
    servers = [listen(None, None, random_port=True) for _ in range(3)]
    assert len({server.port for server in servers}) == 3
    assert all(server.port not in range(1, PORT + 100) for server in servers)
    assert all(close_and_list_addresses(server) == ["127.0.0.1", "::1"] for server in servers)
