"""``type: remote``: a machine reached by SSH, detached, nothing around the command."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..attachments import Attachment, Attachments, through
from ..errors import HostError
from ..hosts import library
from ..hosts.replies import Reply, printable
from ..hosts.ssh import SshHost
from ..hosts.stranger import NOT_ATTACHED, Stranger
from ..model import Compute
from ..paths import UserPaths
from .types import IMAGE, MASTER, type_of

if TYPE_CHECKING:
    from ..hosts.facts import Facts
    from .check import Link


def open_host(compute: Compute, paths: UserPaths) -> SshHost | Stranger:
    """The machine, if this user attached it: what a cloned project names is nobody's word but the project's."""
    found, row = find_attachment(compute, paths), type_of(compute)
    return SshHost(found, paths, row.contained, row.starter) if found else Stranger(not_attached(compute))


def find_attachment(compute: Compute, paths: UserPaths) -> Attachment | None:
    if compute.address is None:
        return None
    found = Attachments(paths).find(compute.address, compute.username, compute.port, compute.jump_host)
    return found and replace(found, called=compute.name)


OUTSIDE = "www.python.org"  # stands for the world outside where the user's settings name no index


def outside(environ: Mapping[str, str]) -> str:
    """What a machine must reach to fetch packages by itself; tried by `check` only."""
    from ..environments.channels import index_place  # noqa: PLC0415 - a submit needs none of it

    return index_place(environ) or OUTSIDE


def look(host: SshHost, python: str | None, reach: str | None = None, *, named: bool = False) -> tuple[Facts, Link]:
    """What the machine is like, and the way to it. ``python`` is the one that would run scripts.

    ``named``: a project names it. It is looked for, and not started.
    """
    from ..hosts.facts import Facts  # noqa: PLC0415 - a submit needs none of it
    from .check import Link  # noqa: PLC0415

    host.connect()
    trips = []
    for _ in range(3):
        begun, sent = time.monotonic(), time.time()
        reply = Reply(host.identity, host.ask({"do": "hello"}))
        took = time.monotonic() - begun
        trips.append((took, (reply.number("time") or 0.0) - sent - took / 2))
    took, skew = min(trips)
    reply = Reply(
        host.identity, host.ask({"do": "facts", "python": python, "reach": reach, "named": named}, patience=120.0)
    )
    facts = reply.require_ok(f"{host.identity} cannot report its facts").mapping("facts")
    return Facts.from_json(facts), Link(host.identity, took, skew, library.digest())


def not_attached(compute: Compute) -> HostError:
    return HostError(
        f"{compute.name} is {machine_of(compute)}, which you have not attached",
        f"if you trust this project, run: {attach_command(compute)}",
        more=NOT_ATTACHED,
        code=NOT_ATTACHED,
    )


def machine_of(compute: Compute) -> str:
    """The machine that a .compute file names, and the way to it."""
    who = f"{compute.username}@{compute.address}" if compute.username else str(compute.address)
    return printable(through(f"{who}:{compute.port}" if compute.port else who, compute.jump_host), 300)


def attach_command(compute: Compute, key_file: str | None = None) -> str:
    """All of it, for the target's file may be gone. What a project says is quoted: it is copied into a shell."""
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
    words = [word for name, value in options.items() if value for word in (name, str(value))]
    return printable(shlex.join(["mlw", "computetarget", "attach", compute.type, *words]), 1000)
