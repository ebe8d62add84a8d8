"""Compute targets: what they are, their GPUs now, attach, check, clean, detach."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from ...config.project import Project
from ...hosts.gpus import Gpu
from ...model import Compute
from ...report.gpus import used_by
from ...targets.types import attachable
from ..answers import targets as answers
from ..answers import words
from ..desk import Desk
from ..gpuwatch import Reading
from . import submission
from .errands import Told, told

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


class AttachWish(BaseModel):
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


class DetachWish(BaseModel):
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


def routes(desk: Desk) -> APIRouter:
    router = APIRouter()
    router.include_router(submission.routes(desk))
    _looking(router, desk)
    _changing(router, desk)
    return router


def _looking(router: APIRouter, desk: Desk) -> None:
    @router.get("/targets", tags=["targets"], summary="List the compute targets of a project")
    async def every(project: Key) -> list[Target]:
        found = await desk.ask(lambda history: answers.cards(history, desk.projects.open(project)))
        return [_target(one) for one in found]

    @router.get("/targets/{name}", tags=["targets"], summary="Get a compute target")
    async def one(name: Name, project: Key) -> Target:
        return _target(await desk.ask(lambda history: answers.card(history, desk.projects.open(project), name)))

    @router.get("/targets/{name}/gpus", tags=["targets"], summary="Get the current GPU usage of a target")
    async def gpus(name: Name, project: Key) -> GpusAnswer:
        compute = await desk.ask(lambda history: answers.compute_of(history, desk.projects.open(project), name))
        return _gpus(await desk.gpus.ask(compute))

    @router.post("/targets/{name}/check", tags=["targets"], summary="Check a target (mlw computetarget check)")
    async def check(name: Name, project: Key) -> list[FindingAnswer]:
        here = await desk.ask(lambda _: desk.projects.open(project))
        errand = await desk.errands.start(*words.check_words(name), cwd=here.root)
        await errand.done.wait()
        error = errand.error()
        if error is not None and not isinstance(errand.answer, list):
            raise error  # it could not be asked; what is missing there is an answer
        return [FindingAnswer(**finding) for finding in errand.answer]


def _changing(router: APIRouter, desk: Desk) -> None:
    @router.post("/targets/attach", tags=["targets"], summary="Attach a host as a compute target")
    async def attach(asked: AttachWish) -> AttachAnswer:
        project = await desk.ask(lambda _: desk.projects.open(asked.project))
        wish = words.Attach(**asked.model_dump(exclude={"project", "password"}))
        password = asked.password.get_secret_value() if asked.password else None
        errand = await desk.errands.start(*wish.words(password is not None), cwd=project.root, secret=password)
        await errand.done.wait()
        found: dict[str, Any] = errand.answer if isinstance(errand.answer, dict) else {}
        error = errand.error()
        if error is not None and "asks" not in found:
            raise error
        known = {name: found[name] for name in AttachAnswer.model_fields if name in found}
        return AttachAnswer(**{**known, "attached": error is None, "operation": errand.id, "errand": errand.id})

    @router.post("/targets/{name}/detach", tags=["targets"], summary="Detach a compute target")
    async def detach(name: Name, project: Key, asked: DetachWish) -> Told:
        here = await desk.ask(lambda _: desk.projects.open(project))
        await _let_go(desk, here, name)
        errand = await desk.errands.start(*words.detach_words(name, **asked.model_dump()), cwd=here.root)
        await errand.done.wait()
        error = errand.error()
        if error is not None:
            raise error
        return told(errand)

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
        here = await desk.ask(lambda _: desk.projects.open(project))
        rows = await desk.errands.do(*words.clean_words(target, remove=remove), cwd=here.root)
        return [CleanRow(**row) for row in rows or []]


async def _let_go(desk: Desk, project: Project, name: str) -> None:
    """The connection by which its GPUs were asked for."""
    if name in await desk.ask(lambda _: project.computes()):
        compute: Compute = await desk.ask(answers.compute_of, project, name)
        await desk.gpus.let_go(compute)


def _target(card: answers.Card) -> Target:
    known = card.attached
    attached = AttachedAnswer(**asdict(known)) if known else None
    return Target(
        **{name: getattr(card, name) for name in ("name", "type", "address", "image", "file", "elsewhere")},
        attached=attached,
        findings=[FindingAnswer(**asdict(one)) for one in card.findings],
        run_configurations=[use.name for use in card.uses],
        trouble=card.trouble,
        hint=card.hint,
    )


def _gpus(reading: Reading) -> GpusAnswer:
    found = reading.gpus
    return GpusAnswer(
        **{name: getattr(reading, name) for name in ("state", "message", "hint", "asked", "again")},
        problem=found.problem if found else None,
        driver=found.driver if found else None,
        cuda=found.cuda if found else None,
        gpus=[_gpu(one) for one in found.gpus] if found else [],
    )


def _gpu(gpu: Gpu) -> GpuAnswer:
    names = [name for name in GpuAnswer.model_fields if name not in ("slices", "used_by")]
    slices = [one.name or one.uuid or "?" for one in gpu.mig]
    return GpuAnswer(**{name: getattr(gpu, name) for name in names}, slices=slices, used_by=used_by(gpu))
