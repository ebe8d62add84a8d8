"""Endpoints for compute targets: configuration, current GPU values, attach, check, clean, and detach."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from ...config.project_folder import Project
from ...hosts.gpu_values import Gpu
from ...model import Compute
from ...report.gpu_report import used_by
from ...targets.types import attachable
from .. import operation_arguments
from ..backend import Backend
from ..gpu_poller import Reading
from ..queries import targets as queries
from . import submit
from .operations import OperationState, operation_state

Key = Annotated[str, Query(min_length=1, max_length=64, description="Project key, as in /api/projects")]
Name = Annotated[
    str, Path(min_length=1, max_length=200, description="Name of the target, as in aml_config/NAME.compute")
]
Text = Annotated[str, Field(min_length=1, max_length=1000)]


class FindingAnswer(BaseModel):
    """A finding. `state`: ok, warning, or error; `hint`: how to fix it."""

    what: str
    state: str
    found: str
    hint: str | None = None


class AttachedAnswer(BaseModel):
    """An attached host."""

    identity: str
    key: str = Field(description="Authentication method")
    host_key: str = Field(description="Fingerprint of the host key")
    mounts: list[str] = Field(description="Folders on the host that containers may mount; :ro means read-only")
    networks: list[str] = Field(description="Networks on the host that containers may join")
    checked: float | None = Field(description="Last check, as Unix time")


class Target(BaseModel):
    """A compute target. `findings`: results of the last check; `attached`: null if the host is not attached."""

    name: str
    type: str | None
    address: str | None
    image: str | None
    file: str
    elsewhere: bool = Field(description="The target is a remote host")
    attached: AttachedAnswer | None
    findings: list[FindingAnswer]
    run_configurations: list[str]
    trouble: str | None = Field(description="Why the target cannot be used")
    hint: str | None


class GpuAnswer(BaseModel):
    """Current state of a GPU. Unavailable values are null. Memory in bytes, power in watts."""

    index: int | None
    uuid: str | None
    name: str | None
    utilisation: int | None
    memory_used: int | None
    memory_total: int | None
    temperature: int | None
    power: float | None
    power_limit: float | None
    slices: list[str]
    used_by: str | None
    error: str | None


class GpusAnswer(BaseModel):
    """`state`: ok; asking (no response yet); no contact (see `message`; the values are the last known ones)."""

    state: Literal["ok", "asking", "no contact"]
    message: str | None
    hint: str | None
    problem: str | None = Field(description="Why the GPUs cannot be queried")
    note: str | None = Field(description="Free GPUs by partition, if a scheduler allocates them")
    driver: str | None
    cuda: str | None
    asked: float | None
    again: float = Field(description="Seconds to wait before the next request")
    gpus: list[GpuAnswer]


def _attachable(name: str) -> str:
    names = [row.name for row in attachable()]
    if name not in names:
        raise ValueError(f"must be one of {', '.join(names)}")
    return name


AttachType = Annotated[
    str, AfterValidator(_attachable), Field(json_schema_extra={"enum": [row.name for row in attachable()]})
]


class AttachRequest(BaseModel):
    """Options of `mlw computetarget attach`."""

    model_config = ConfigDict(extra="forbid")
    project: Annotated[str, Field(min_length=1, max_length=64)]
    name: Annotated[str, Field(min_length=1, max_length=200)]
    kind: AttachType | None = None
    address: Text | None = None
    username: Text | None = None
    port: int | None = Field(None, ge=1, le=65535)
    jump: Text | None = None
    password: SecretStr | None = Field(None, description="Used once to install a key; never stored")
    private_key_file: Text | None = None
    own_key: bool = Field(False, description="Like --use-azureml-ssh-key: the response has the public key to append")
    host_key: Text | None = Field(None, description="Expected fingerprint of the host key")
    mounts: Annotated[list[Text], Field(max_length=100)] = []
    image: Text | None = None
    master: Text | None = Field(
        None, description="Master of a Spark cluster; without `address`, it is contacted from this machine"
    )
    partition: Text | None = Field(None, description="Slurm partition; the options below are also for Slurm only")
    account: Text | None = None
    qos: Text | None = None
    constraint: Text | None = None
    time: Text | None = Field(None, description="Time limit of the jobs, such as 2:00:00")
    replace: bool = False


class AttachAnswer(BaseModel):
    """`asks`: what has to be confirmed first. host_key: verify the fingerprint and repeat the request with it;
    public_key: append `line` to ~/.ssh/authorized_keys on the host and repeat the request."""

    attached: bool
    operation: str
    errand: str = Field(
        description="Former name of `operation`; removed in 1.0", json_schema_extra={"deprecated": True}
    )
    asks: Literal["host_key", "public_key"] | None = None
    identity: str | None = None
    host_key: str | None = None
    kind: str | None = Field(None, description="Type of the host key")
    line: str | None = None
    written: list[str] = []
    findings: list[FindingAnswer] = []


class DetachRequest(BaseModel):
    """Options of `mlw computetarget detach`."""

    model_config = ConfigDict(extra="forbid")
    purge: bool = Field(
        False, description="Also delete ~/.mlw on the host; results are fetched first, shared folders are kept"
    )
    keep_files: bool = False
    force: bool = Field(False, description="Detach even if the host is unreachable")


class CleanRow(BaseModel):
    """Number and size of items of one kind. `can_go`, `can_go_bytes`: removable; only for a remote host, before
    removal."""

    kind: str
    things: int
    bytes: int
    can_go: int | None = None
    can_go_bytes: int | None = None


def routes(backend: Backend) -> APIRouter:
    router = APIRouter()
    router.include_router(submit.routes(backend))
    _add_read_routes(router, backend)
    _add_write_routes(router, backend)
    return router


def _add_read_routes(router: APIRouter, backend: Backend) -> None:
    @router.get("/targets", tags=["targets"], summary="List the compute targets of a project")
    async def list_targets(project: Key) -> list[Target]:
        cards = await backend.call(lambda history: queries.cards(history, backend.projects.open(project)))
        return [_target(card) for card in cards]

    @router.get("/targets/{name}", tags=["targets"], summary="Get a compute target")
    async def get_target(name: Name, project: Key) -> Target:
        return _target(await backend.call(lambda history: queries.card(history, backend.projects.open(project), name)))

    @router.get("/targets/{name}/gpus", tags=["targets"], summary="Get the current GPU usage of a target")
    async def get_gpus(name: Name, project: Key) -> GpusAnswer:
        compute = await backend.call(
            lambda history: queries.load_compute(history, backend.projects.open(project), name)
        )
        return _gpus(await backend.gpus.read(compute))

    @router.post("/targets/{name}/check", tags=["targets"], summary="Check a target (mlw computetarget check)")
    async def check(name: Name, project: Key) -> list[FindingAnswer]:
        opened = await backend.call(lambda _: backend.projects.open(project))
        operation = await backend.operations.start(*operation_arguments.check_arguments(name), cwd=opened.root)
        await operation.done.wait()
        error = operation.error()
        if error is not None and not isinstance(operation.result, list):
            raise error  # the check itself failed, without any findings
        return [FindingAnswer(**finding) for finding in operation.result]


def _add_write_routes(router: APIRouter, backend: Backend) -> None:
    @router.post("/targets/attach", tags=["targets"], summary="Attach a host as a compute target")
    async def attach(body: AttachRequest) -> AttachAnswer:
        project = await backend.call(lambda _: backend.projects.open(body.project))
        options = operation_arguments.Attach(**body.model_dump(exclude={"project", "password"}))
        password = body.password.get_secret_value() if body.password else None
        operation = await backend.operations.start(
            *options.arguments(password is not None), cwd=project.root, secret=password
        )
        await operation.done.wait()
        result: dict[str, Any] = operation.result if isinstance(operation.result, dict) else {}
        error = operation.error()
        if error is not None and "asks" not in result:
            raise error
        fields = {name: result[name] for name in AttachAnswer.model_fields if name in result}
        return AttachAnswer(**{**fields, "attached": error is None, "operation": operation.id, "errand": operation.id})

    @router.post("/targets/{name}/detach", tags=["targets"], summary="Detach a compute target")
    async def detach(name: Name, project: Key, body: DetachRequest) -> OperationState:
        opened = await backend.call(lambda _: backend.projects.open(project))
        await _disconnect_gpus(backend, opened, name)
        operation = await backend.operations.start(
            *operation_arguments.detach_arguments(name, **body.model_dump()), cwd=opened.root
        )
        await operation.done.wait()
        error = operation.error()
        if error is not None:
            raise error
        return operation_state(operation)

    @router.post(
        "/clean",
        tags=["targets"],
        summary="List files that can be deleted on this machine or a target; delete them with `remove`",
    )
    async def clean(
        project: Key,
        target: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
        remove: bool = False,
    ) -> list[CleanRow]:
        opened = await backend.call(lambda _: backend.projects.open(project))
        rows = await backend.operations.run(
            *operation_arguments.clean_arguments(target, remove=remove), cwd=opened.root
        )
        return [CleanRow(**row) for row in rows or []]


async def _disconnect_gpus(backend: Backend, project: Project, name: str) -> None:
    """Close the connection that polls the GPUs of a target."""
    if name in await backend.call(lambda _: project.computes()):
        compute: Compute = await backend.call(queries.load_compute, project, name)
        await backend.gpus.disconnect(compute)


def _target(card: queries.Card) -> Target:
    attachment = card.attached
    attached = AttachedAnswer(**asdict(attachment)) if attachment else None
    return Target(
        **{name: getattr(card, name) for name in ("name", "type", "address", "image", "file", "elsewhere")},
        attached=attached,
        findings=[FindingAnswer(**asdict(finding)) for finding in card.findings],
        run_configurations=[use.name for use in card.uses],
        trouble=card.trouble,
        hint=card.hint,
    )


def _gpus(reading: Reading) -> GpusAnswer:
    values = reading.gpus
    return GpusAnswer(
        **{name: getattr(reading, name) for name in ("state", "message", "hint", "asked", "again")},
        problem=values.problem if values else None,
        note=values.note if values else None,
        driver=values.driver if values else None,
        cuda=values.cuda if values else None,
        gpus=[_gpu(gpu) for gpu in values.gpus] if values else [],
    )


def _gpu(gpu: Gpu) -> GpuAnswer:
    names = [name for name in GpuAnswer.model_fields if name not in ("slices", "used_by")]
    slices = [mig_slice.name or mig_slice.uuid or "?" for mig_slice in gpu.mig]
    return GpuAnswer(**{name: getattr(gpu, name) for name in names}, slices=slices, used_by=used_by(gpu))
