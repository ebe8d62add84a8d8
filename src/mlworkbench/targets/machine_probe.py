"""Ask a machine that is reached over SSH for its facts, for attach and check."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ..environments.package_sources import index_host
from ..hosts import bundle
from ..hosts.host_facts import Facts
from ..hosts.replies import Reply
from ..hosts.ssh_host import SshHost
from .machine_check import Link

DEFAULT_PACKAGE_HOST = "www.python.org"  # host to test if the user's settings name no package index


def package_host(environ: Mapping[str, str]) -> str:
    """Return the host that a machine must reach to download packages itself. Only ``check`` tests this."""
    return index_host(environ) or DEFAULT_PACKAGE_HOST


def probe_machine(
    host: SshHost, python: str | None, reach: str | None = None, *, named: bool = False
) -> tuple[Facts, Link]:
    """Return facts about the machine and the connection.

    ``python``: interpreter for scripts. ``reach``: host whose reachability to test. ``named``: the project
    names the interpreter, so it is located but not started.
    """
    host.connect()
    trips = []
    for _ in range(3):
        begun, sent = time.monotonic(), time.time()
        reply = Reply(host.identity, host.ask({"do": "hello"}))
        took = time.monotonic() - begun
        trips.append((took, (reply.number("time") or 0.0) - sent - took / 2))
    took, skew = min(trips)
    reply = Reply(
        host.identity, host.ask({"do": "facts", "python": python, "reach": reach, "named": named}, timeout=120.0)
    )
    facts = reply.require_ok(f"{host.identity} cannot report its facts").mapping("facts")
    return Facts.from_json(facts), Link(host.identity, took, skew, bundle.digest())
