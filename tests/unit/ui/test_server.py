"""On which sockets the server listens."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from mlworkbench.errors import UsageError
from mlworkbench.ui.server import PORT, door_of, listen


def without_ipv6(monkeypatch, *, made=None, bound=None):
    """Sockets of IPv6 fail as they do on a machine that refuses them: when they are made, or when they are bound."""

    class Refused(socket.socket):
        def __init__(self, family=-1, *more, **named):
            if family == socket.AF_INET6 and made:
                raise OSError(made, os.strerror(made))
            super().__init__(family, *more, **named)

        def bind(self, address):
            if self.family == socket.AF_INET6 and bound:
                raise OSError(bound, os.strerror(bound))
            super().bind(address)

    monkeypatch.setattr(socket, "socket", Refused)


@pytest.mark.parametrize("how", [{"made": errno.EAFNOSUPPORT}, {"bound": errno.EADDRNOTAVAIL}])
def test_a_machine_without_ipv6_does_without_it(monkeypatch, how):
    without_ipv6(monkeypatch, **how)
    found = listen(None, 0)
    assert [one.getsockname()[0] for one in found.sockets] == ["127.0.0.1"]
    for one in found.sockets:
        one.close()


@pytest.mark.parametrize("why", [errno.EACCES, errno.EPERM])
def test_an_address_that_somebody_else_may_have_is_not_passed_over(monkeypatch, why):
    """A browser that tries ::1 first would get to whoever listens there."""
    without_ipv6(monkeypatch, bound=why)
    with pytest.raises(UsageError, match="cannot listen on this machine"):
        listen(None, 0)


def test_a_port_that_somebody_has_on_ipv6_only_is_not_used():
    with socket.socket(socket.AF_INET6) as squatter:
        squatter.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        squatter.bind(("::1", 0))
        squatter.listen()
        with pytest.raises(UsageError, match="already in use"):
            listen(None, squatter.getsockname()[1])


def places_of(found):
    every = sorted(one.getsockname()[0] for one in found.sockets)
    for one in found.sockets:
        one.close()
    return every


@pytest.mark.parametrize("name", ["localhost", "LocalHost."])
def test_localhost_is_both_loopback_addresses(monkeypatch, name):
    """Whatever the machine's list of hosts says: browsers try both."""
    monkeypatch.setattr("socket.getaddrinfo", only_numeric(socket.getaddrinfo))
    found = listen(name, 0)
    assert places_of(found) == ["127.0.0.1", "::1"]
    assert f"127.0.0.1:{found.port}" in door_of(found, "").hosts


def only_numeric(resolve, **names):
    """Names that are not in the list are those of IPv4's loopback."""

    def asked(host, port, *more, **named):
        every = names.get(host.replace(".", "_"), [host if host[0] in "0123456789:" else "127.0.0.1"])
        return [found for one in every for found in resolve(one, port, *more, **named)]

    return asked


def test_every_address_of_a_name_is_used(monkeypatch):
    several = only_numeric(socket.getaddrinfo, box=["127.0.0.2", "::1", "127.0.0.2"], far=["127.0.0.2", "192.0.2.7"])
    monkeypatch.setattr("socket.getaddrinfo", several)
    assert places_of(listen("box", 0)) == ["127.0.0.2", "::1"]
    with pytest.raises(UsageError, match="cannot listen on far"):
        listen("far", 0)


def test_all_addresses_are_those_of_ipv4_too():
    """The link names one of these."""
    assert places_of(listen("::", 0)) == ["0.0.0.0", "::"]


def test_a_port_that_nobody_can_guess():
    """Where the secret is in the path, the origin of the pages has only the port to be told apart by."""
    found = [listen(None, None, random_port=True) for _ in range(3)]
    assert len({one.port for one in found}) == 3
    assert all(one.port not in range(1, PORT + 100) for one in found)
    assert all(places_of(one) == ["127.0.0.1", "::1"] for one in found)
