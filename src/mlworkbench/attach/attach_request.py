"""What the user asked for, and how attach talks to them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import Protocol

from ..attachments import same_way
from ..config.place import is_plain_name
from ..config.project import Project
from ..consents import Consent
from ..errors import ConfigError, HostError, UsageError
from ..frameworks.pyspark import is_master
from ..hosts.replies import printable
from ..model import Compute, JsonDict
from ..targets.remote import machine_of
from ..targets.types import DEFAULT_ATTACH, MASTER, attachable, compute_type, find_type


@dataclass(frozen=True)
class Wish:
    """The words of the command line; secrets are in it only for as long as the command runs."""

    name: str
    kind: str | None = None
    address: str | None = None
    username: str | None = None
    port: int | None = None
    jump: str | None = None
    password: str | None = None
    private_key_file: str | None = None
    passphrase: str | None = None  # "" means: ask
    own_key: bool = False
    host_key: str | None = None
    consents: tuple[Consent, ...] = ()  # what containers may have of the machine
    image: str | None = None
    master: str | None = None  # of a Spark cluster
    replace: bool = False


class Unanswered(HostError):
    """There was nobody to ask. ``question`` is for the program that can, and attaches again with the answer."""

    more = "host-key-unknown"

    def __init__(self, message: str, hint: str, question: JsonDict) -> None:
        super().__init__(message, hint)
        self.question = question


class Talk(Protocol):
    """The person at the keyboard; None where there is nobody."""

    def say(self, text: str) -> None: ...

    def confirm(self, question: str) -> bool | None: ...

    def secret(self, question: str) -> str | None: ...


def complete(project: Project, wish: Wish) -> tuple[Wish, Compute | None]:
    """What the command line leaves out comes from the target's file, as in a project that was cloned.

    With --replace nothing does: the file may be untrusted. Also returns what the file says if it is about the same
    machine: then it stays as it is.
    """
    if not is_plain_name(wish.name):
        raise UsageError(
            f"{wish.name!r} is not a valid target name", "the name becomes a file name: use letters, digits, -, and _"
        )
    there = _there(project, wish)
    _check_master(wish, None if wish.replace else there)
    given = wish if there is None or wish.replace else _filled(wish, there)
    given = replace(given, kind=given.kind or DEFAULT_ATTACH.name)
    if given.address is None and given.master is None:
        other = ", or --master spark://host:7077 from here" if compute_type(str(given.kind)).asks(MASTER) else ""
        raise UsageError("--address is missing", f"for example: --name {wish.name} --address 10.0.0.7{other}")
    same = there is not None and _is_same(given, there)
    if there is not None and not same and not wish.replace:
        raise UsageError(
            f"aml_config/{wish.name}.compute already exists for another machine: {there.type} {_machine(there)}",
            "choose another --name, or use --replace",
        )
    return given, there if same else None


def _filled(wish: Wish, there: Compute) -> Wish:
    return replace(
        wish,
        kind=wish.kind or there.type,
        address=wish.address or there.address,
        username=wish.username or there.username,
        port=wish.port or there.port,
        jump=wish.jump or there.jump_host,
        master=wish.master or there.spark_master,
    )


def _is_same(wish: Wish, there: Compute) -> bool:
    asked = (wish.kind, wish.address, wish.username, wish.port or 22, wish.master)
    known = (there.type, there.address, there.username, there.port or 22, there.spark_master)
    return asked == known and same_way(wish.jump, there.jump_host)


def confirm_way(typed: Wish, filled: Wish, machine: str, talk: Talk) -> None:
    """Before any connection: address, port, and jump host of a cloned project are not the user's own word."""
    names = ("address", "port", "jump")
    added = {f"--{one}": getattr(filled, one) for one in names if getattr(typed, one) != getattr(filled, one)}
    if not added:
        return
    file, machine = f"aml_config/{filled.name}.compute", printable(machine)
    answer = talk.confirm(f"Connect to {machine}, the address in {file}?")
    if answer:
        return
    words = printable(shlex.join(word for name, value in added.items() for word in (name, str(value))))
    hint = f"if you trust this project, add: {words}"
    if answer is None:
        raise UsageError(
            f"nothing was attached: {file} contains the address {machine}, and there is no terminal to confirm it", hint
        )
    raise UsageError(f"nothing was attached: {file} contains the address {machine}, and you did not confirm it", hint)


def _machine(compute: Compute) -> str:
    return machine_of(compute) if compute.address else str(compute.spark_master)


def _check_master(wish: Wish, there: Compute | None) -> None:
    kind = wish.kind or (there.type if there else DEFAULT_ATTACH.name)
    if wish.master is None:
        return
    login = (wish.username, wish.port, wish.jump, wish.password, wish.private_key_file, wish.own_key or None)
    if wish.address is None and not (there and there.address) and any(one is not None for one in login):
        raise UsageError(
            "--address is missing: user, port, and key options need a machine to connect to over SSH",
            "set --address to the edge node, or remove these options to use the cluster from this machine",
        )
    if not compute_type(kind).asks(MASTER):
        fitting = [row.name for row in attachable() if row.asks(MASTER)]
        raise UsageError(
            f"--master works only with {' and '.join(fitting)} targets, not {kind}",
            f"mlw computetarget attach {fitting[0]} --name {wish.name} …",
        )
    if not is_master(wish.master):
        raise UsageError(f"{wish.master!r} is not a valid Spark master", "for example: spark://host:7077 or yarn")


def _there(project: Project, wish: Wish) -> Compute | None:
    if wish.name not in project.computes():
        return None
    try:
        found = project.compute(wish.name)
    except ConfigError:
        if wish.replace:
            return None
        raise
    row = find_type(found.type)
    if row and row.attach is None and not wish.replace:
        raise UsageError(
            f"{wish.name} is a target of type {found.type}, which does not need attaching",
            "choose another --name, or use --replace",
        )
    return found
