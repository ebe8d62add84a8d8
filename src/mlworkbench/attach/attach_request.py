"""Request to attach a machine, and the interface for prompting the user."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, fields, replace
from typing import Protocol

from ..attachments import same_route
from ..config.project_files import is_plain_name
from ..config.project_folder import Project
from ..container_consents import Consent
from ..errors import ConfigError, HostError, UsageError
from ..frameworks.pyspark import is_master
from ..hosts.replies import printable
from ..model import Compute, JsonDict
from ..slurm_options import TIME_EXAMPLES, parse_time_limit
from ..targets.open_remote import machine_of
from ..targets.types import DEFAULT_ATTACH, JOB, MASTER, ComputeType, attachable, compute_type, find_type


@dataclass(frozen=True)
class JobOptions:
    """What every job of a target requests from the scheduler. The fields are keys of the ``.compute`` file."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time: str | None = None

    @property
    def given(self) -> dict[str, str]:
        """The options that are set."""
        values = ((item.name, getattr(self, item.name)) for item in fields(self))
        return {name: value for name, value in values if value is not None}

    def check(self) -> None:
        """Raise an error for a value that the scheduler would reject or read as an option."""
        for name, value in self.given.items():
            if not value.strip() or value.startswith("-") or not value.isprintable():
                raise UsageError(f"--{name} {value!r} is not valid", f"for example: --{name} {_EXAMPLES[name]}")
        if self.time is not None and parse_time_limit(self.time) is None:
            raise UsageError(f"--time {self.time!r} is not a time limit of Slurm", f"for example: {TIME_EXAMPLES}")


_EXAMPLES = {"partition": "gpu", "account": "vision", "qos": "normal", "constraint": "a100", "time": "2:00:00"}


@dataclass(frozen=True)
class AttachRequest:
    """Options of the attach command. Secrets are kept in memory only while the command runs."""

    name: str
    kind: str | None = None
    address: str | None = None
    username: str | None = None
    port: int | None = None
    jump: str | None = None
    password: str | None = None
    private_key_file: str | None = None
    passphrase: str | None = None  # "" means prompt
    own_key: bool = False
    host_key: str | None = None
    consents: tuple[Consent, ...] = ()  # what containers may access on the machine
    image: str | None = None
    master: str | None = None  # Spark clusters only
    job: JobOptions = field(default_factory=JobOptions)  # targets with a scheduler only
    replace: bool = False


class Unanswered(HostError):
    """Error for a prompt without a terminal. The caller can answer ``question`` and attach again."""

    more = "host-key-unknown"

    def __init__(self, message: str, hint: str, question: JsonDict) -> None:
        super().__init__(message, hint)
        self.question = question


class Prompter(Protocol):
    """Interface for prompting the user. Answers are None if there is no terminal."""

    def say(self, text: str) -> None: ...

    def confirm(self, question: str) -> bool | None: ...

    def secret(self, question: str) -> str | None: ...


def complete(project: Project, request: AttachRequest) -> tuple[AttachRequest, Compute | None]:
    """Fill in missing options from an existing file of the target, as in a cloned project.

    With ``--replace``, the options do not come from the file, because it may be untrusted. Also return the
    file's content if it describes the same machine; the file is then kept.
    """
    if not is_plain_name(request.name):
        raise UsageError(
            f"{request.name!r} is not a valid target name",
            "the name becomes a file name: use letters, digits, -, and _",
        )
    existing = _existing_compute(project, request)
    _check_master(request, None if request.replace else existing)
    given = request if existing is None or request.replace else _filled(request, existing)
    given = replace(given, kind=given.kind or DEFAULT_ATTACH.name)
    row = compute_type(str(given.kind))
    _check_job(given, existing, row)
    if given.address is None and given.master is None and not row.asks(JOB):
        other = ", or --master spark://host:7077 from here" if row.asks(MASTER) else ""
        raise UsageError("--address is missing", f"for example: --name {request.name} --address 10.0.0.7{other}")
    same = existing is not None and _is_same(given, existing)
    if existing is not None and not same and not request.replace:
        raise UsageError(
            f"aml_config/{request.name}.compute already exists for another machine: "
            f"{existing.type} {_machine(existing)}",
            "choose another --name, or use --replace",
        )
    return given, existing if same else None


def _check_job(request: AttachRequest, existing: Compute | None, row: ComputeType) -> None:
    """Check the options for a scheduler, which an existing file must not contradict: the file is kept."""
    if request.job.given and not row.asks(JOB):
        fitting = [other.name for other in attachable() if other.asks(JOB)]
        raise UsageError(
            f"--{next(iter(request.job.given))} works only with {' and '.join(fitting)} targets, not {row.name}",
            f"mlw computetarget attach {fitting[0]} --name {request.name} …",
        )
    request.job.check()
    if existing is None or request.replace:
        return
    for name, value in request.job.given.items():
        if value != getattr(existing, name):
            raise UsageError(
                f"aml_config/{request.name}.compute already exists, with another {name} than {value}",
                "edit the file, or use --replace",
            )


def _filled(request: AttachRequest, existing: Compute) -> AttachRequest:
    return replace(
        request,
        kind=request.kind or existing.type,
        address=request.address or existing.address,
        username=request.username or existing.username,
        port=request.port or existing.port,
        jump=request.jump or existing.jump_host,
        master=request.master or existing.spark_master,
    )


def _is_same(request: AttachRequest, existing: Compute) -> bool:
    requested = (request.kind, request.address, request.username, request.port or 22, request.master)
    current = (existing.type, existing.address, existing.username, existing.port or 22, existing.spark_master)
    return requested == current and same_route(request.jump, existing.jump_host)


def confirm_route(typed: AttachRequest, filled: AttachRequest, machine: str, prompter: Prompter) -> None:
    """Confirm the address, port, and jump host that come from a project file, before connecting."""
    names = ("address", "port", "jump")
    added = {
        f"--{option}": getattr(filled, option) for option in names if getattr(typed, option) != getattr(filled, option)
    }
    if not added:
        return
    file, machine = f"aml_config/{filled.name}.compute", printable(machine)
    answer = prompter.confirm(f"Connect to {machine}, the address in {file}?")
    if answer:
        return
    arguments = printable(shlex.join(argument for name, value in added.items() for argument in (name, str(value))))
    hint = f"if you trust this project, add: {arguments}"
    if answer is None:
        raise UsageError(
            f"nothing was attached: {file} contains the address {machine}, and there is no terminal to confirm it", hint
        )
    raise UsageError(f"nothing was attached: {file} contains the address {machine}, and you did not confirm it", hint)


def _machine(compute: Compute) -> str:
    return machine_of(compute) if compute.address else str(compute.spark_master or "this machine")


def _check_master(request: AttachRequest, existing: Compute | None) -> None:
    kind = request.kind or (existing.type if existing else DEFAULT_ATTACH.name)
    if request.master is None and not compute_type(kind).asks(JOB):
        return
    login = (
        request.username,
        request.port,
        request.jump,
        request.password,
        request.private_key_file,
        request.own_key or None,
    )
    if request.address is None and not (existing and existing.address) and any(option is not None for option in login):
        raise UsageError(
            "--address is missing: user, port, and key options need a machine to connect to over SSH",
            "set --address to the login node, or remove these options to use the cluster from this machine",
        )
    if request.master is None:
        return
    if not compute_type(kind).asks(MASTER):
        fitting = [row.name for row in attachable() if row.asks(MASTER)]
        raise UsageError(
            f"--master works only with {' and '.join(fitting)} targets, not {kind}",
            f"mlw computetarget attach {fitting[0]} --name {request.name} …",
        )
    if not is_master(request.master):
        raise UsageError(f"{request.master!r} is not a valid Spark master", "for example: spark://host:7077 or yarn")


def _existing_compute(project: Project, request: AttachRequest) -> Compute | None:
    if request.name not in project.computes():
        return None
    try:
        compute = project.compute(request.name)
    except ConfigError:
        if request.replace:
            return None
        raise
    row = find_type(compute.type)
    if row and row.attach is None and not request.replace:
        raise UsageError(
            f"{request.name} is a target of type {compute.type}, which does not need attaching",
            "choose another --name, or use --replace",
        )
    return compute
