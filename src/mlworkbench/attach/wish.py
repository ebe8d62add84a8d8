"""What the user asked for, and how attach talks to them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from ..config.place import is_plain_name
from ..config.project import Project
from ..consents import Consent
from ..errors import ConfigError, HostError, UsageError
from ..frameworks.pyspark import is_master
from ..model import Compute, JsonDict

DEFAULT_KIND = "remotedocker"  # the original's, when --type was left out


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

    Also tells what that file says: it stays as it is if it is about the same machine.
    """
    if not is_plain_name(wish.name):
        raise UsageError(f"{wish.name!r} cannot be the name of a target", "it becomes the name of two files")
    there = _there(project, wish)
    _check_master(wish, there)
    if there is None:
        if wish.address is None and wish.master is None:
            other = ", or --master spark://host:7077 from here" if wish.kind == "cluster" else ""
            raise UsageError("--address is missing", f"for example: --name {wish.name} --address 10.0.0.7{other}")
        return replace(wish, kind=wish.kind or DEFAULT_KIND), None
    asked = (wish.kind or there.kind, wish.address or there.address, wish.username or there.username)
    same = asked == (there.kind, there.address, there.username) and wish.port in (None, there.port or 22)
    same = same and wish.master in (None, there.spark_master)
    if not same and not wish.replace:
        raise UsageError(
            f"aml_config/{wish.name}.compute is there and names another machine: {there.type} {_machine(there)}",
            "choose another --name, or say --replace",
        )
    filled = replace(
        wish,
        kind=asked[0],
        address=asked[1],
        username=asked[2],
        port=wish.port or there.port,
        jump=wish.jump or there.jump_host,
        master=wish.master or there.spark_master,
    )
    if filled.address is None and filled.master is None:
        raise UsageError("--address is missing")
    return filled, there if same else None


def _machine(compute: Compute) -> str:
    return f"{compute.username or ''}@{compute.address}" if compute.address else str(compute.spark_master)


def _check_master(wish: Wish, there: Compute | None) -> None:
    kind = wish.kind or (there.kind if there else DEFAULT_KIND)
    if wish.master is None:
        return
    login = (wish.username, wish.port, wish.jump, wish.password, wish.private_key_file, wish.own_key or None)
    if wish.address is None and not (there and there.address) and any(one is not None for one in login):
        raise UsageError(
            "--address is missing: a user, a port or a key is for a machine that is reached by SSH",
            "name the edge node with --address; without it the cluster is reached from this machine",
        )
    if kind != "cluster":
        raise UsageError(
            f"--master is for clusters, and this is a {kind} target",
            f"mlw computetarget attach cluster --name {wish.name} …",
        )
    if not is_master(wish.master):
        raise UsageError(f"{wish.master!r} is no master that Spark knows", "spark://host:7077, for example, or yarn")


def _there(project: Project, wish: Wish) -> Compute | None:
    if wish.name not in project.computes():
        return None
    try:
        found = project.compute(wish.name)
    except ConfigError:
        if wish.replace:
            return None
        raise
    if found.kind in ("local", "docker") and not wish.replace:
        raise UsageError(
            f"{wish.name} is a target of type {found.type}, which needs no attach",
            "choose another --name, or say --replace",
        )
    return found
