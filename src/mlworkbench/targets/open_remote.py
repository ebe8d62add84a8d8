"""Open a machine that is reached over SSH as a host."""

from __future__ import annotations

import shlex
from dataclasses import replace

from ..attachments import Attachment, Attachments, with_route
from ..errors import HostError
from ..hosts.replies import printable
from ..hosts.ssh_host import SshHost
from ..hosts.unattached import NOT_ATTACHED, UnattachedHost
from ..model import Compute
from ..paths import UserPaths
from .compute_type import IMAGE, JOB, MASTER, ComputeType

JOB_OPTIONS = ("partition", "account", "qos", "constraint", "time")


def open_host(compute: Compute, row: ComputeType, paths: UserPaths) -> SshHost | UnattachedHost:
    """Return the machine if this user attached it; a cloned project alone cannot make mlw connect."""
    attachment = find_attachment(compute, paths)
    if attachment is None:
        return UnattachedHost(not_attached(compute, row))
    return SshHost(attachment, paths, row.contained, row.starter)


def find_attachment(compute: Compute, paths: UserPaths) -> Attachment | None:
    if compute.address is None:
        return None
    attachment = Attachments(paths).find(compute.address, compute.username, compute.port, compute.jump_host)
    return attachment and replace(attachment, called=compute.name)


def not_attached(compute: Compute, row: ComputeType) -> HostError:
    return HostError(
        f"{compute.name} is {machine_of(compute)}, which you have not attached",
        f"if you trust this project, run: {attach_command(compute, row)}",
        more=NOT_ATTACHED,
        code=NOT_ATTACHED,
    )


def machine_of(compute: Compute) -> str:
    """Return the machine that a ``.compute`` file names, and the route to it."""
    who = f"{compute.username}@{compute.address}" if compute.username else str(compute.address)
    return printable(with_route(f"{who}:{compute.port}" if compute.port else who, compute.jump_host), 300)


def attach_command(compute: Compute, row: ComputeType, key_file: str | None = None) -> str:
    """Return the attach command with all options, because the target's file may be missing.

    Values from a project are quoted.
    """
    options = {
        "--name": compute.name,
        "--address": compute.address,
        "--username": compute.username,
        "--port": compute.port,
        "--jump": compute.jump_host,
        "--master": compute.spark_master if row.asks(MASTER) else None,
        "--image": compute.base_docker_image if row.asks(IMAGE) else None,
        **({f"--{name}": getattr(compute, name) for name in JOB_OPTIONS} if row.asks(JOB) else {}),
        "--private-key-file": key_file,
    }
    arguments = [argument for name, value in options.items() if value for argument in (name, str(value))]
    return printable(shlex.join(["mlw", "computetarget", "attach", compute.type, *arguments]), 1000)
