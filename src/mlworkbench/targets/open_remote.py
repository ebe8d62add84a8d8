"""Open a machine that is reached over SSH as a host."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..attachments import Attachment, Attachments, with_route
from ..errors import HostError
from ..hosts import bundle
from ..hosts.replies import Reply, printable
from ..hosts.ssh_host import SshHost
from ..hosts.unattached import NOT_ATTACHED, UnattachedHost
from ..model import Compute
from ..paths import UserPaths
from .types import IMAGE, MASTER, type_of

if TYPE_CHECKING:
    from ..hosts.host_facts import Facts
    from .machine_check import Link


def open_host(compute: Compute, paths: UserPaths) -> SshHost | UnattachedHost:
    """Return the machine if this user attached it; a cloned project alone cannot make mlw connect."""
    attachment, row = find_attachment(compute, paths), type_of(compute)
    return (
        SshHost(attachment, paths, row.contained, row.starter) if attachment else UnattachedHost(not_attached(compute))
    )


def find_attachment(compute: Compute, paths: UserPaths) -> Attachment | None:
    if compute.address is None:
        return None
    attachment = Attachments(paths).find(compute.address, compute.username, compute.port, compute.jump_host)
    return attachment and replace(attachment, called=compute.name)


DEFAULT_PACKAGE_HOST = "www.python.org"  # host to test if the user's settings name no package index


def package_host(environ: Mapping[str, str]) -> str:
    """Return the host that a machine must reach to download packages itself. Only ``check`` tests this."""
    from ..environments.package_sources import index_host  # noqa: PLC0415 - a submit needs none of it

    return index_host(environ) or DEFAULT_PACKAGE_HOST


def probe_machine(
    host: SshHost, python: str | None, reach: str | None = None, *, named: bool = False
) -> tuple[Facts, Link]:
    """Return facts about the machine and the connection.

    ``python``: interpreter for scripts. ``reach``: host whose reachability to test. ``named``: the project
    names the interpreter, so it is located but not started.
    """
    from ..hosts.host_facts import Facts  # noqa: PLC0415 - a submit needs none of it
    from .machine_check import Link  # noqa: PLC0415

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


def not_attached(compute: Compute) -> HostError:
    return HostError(
        f"{compute.name} is {machine_of(compute)}, which you have not attached",
        f"if you trust this project, run: {attach_command(compute)}",
        more=NOT_ATTACHED,
        code=NOT_ATTACHED,
    )


def machine_of(compute: Compute) -> str:
    """Return the machine that a ``.compute`` file names, and the route to it."""
    who = f"{compute.username}@{compute.address}" if compute.username else str(compute.address)
    return printable(with_route(f"{who}:{compute.port}" if compute.port else who, compute.jump_host), 300)


def attach_command(compute: Compute, key_file: str | None = None) -> str:
    """Return the attach command with all options, because the target's file may be missing.

    Values from a project are quoted.
    """
    row = type_of(compute)
    options = {
        "--name": compute.name,
        "--address": compute.address,
        "--username": compute.username,
        "--port": compute.port,
        "--jump": compute.jump_host,
        "--master": compute.spark_master if row.asks(MASTER) else None,
        "--image": compute.base_docker_image if row.asks(IMAGE) else None,
        "--private-key-file": key_file,
    }
    arguments = [argument for name, value in options.items() if value for argument in (name, str(value))]
    return printable(shlex.join(["mlw", "computetarget", "attach", compute.type, *arguments]), 1000)
