"""On which sockets the server listens."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from mlworkbench.errors import UsageError
from mlworkbench.ui.server import listen


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
        with pytest.raises(UsageError, match="is taken"):
            listen(None, squatter.getsockname()[1])
