"""Putting runs to work, and making their environments ready: POST /api/submit and POST /api/prepare."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from ...secret import HANDED
from ..answers.words import Submit, prepare_words
from ..desk import Desk
from ..errands import Errand
from .errands import Told, told

Name = Annotated[str, Field(min_length=1, max_length=200)]
Word = Annotated[str, Field(max_length=32_768)]
SecretName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]


class Sweep(BaseModel):
    """Options of `mlw submit --sweep`."""

    model_config = ConfigDict(extra="forbid")
    axes: Annotated[list[Word], Field(min_length=1, max_length=100, description="NAME=VALUES, for example lr=0.1,0.01")]
    random: bool = Field(False, description="Sample random values instead of running all combinations")
    max_runs: int | None = Field(None, ge=1, le=1_000_000)
    parallel: int | None = Field(None, ge=1, le=1_000_000)
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    metric: Name | None = None
    goal: Literal["max", "min"] | None = None


class Submission(BaseModel):
    """Options of `mlw experiment submit`. Set one of script, module, and command, or none of them if the run
    configuration names a script."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    project: Annotated[str, Field(min_length=1, max_length=64, description="Project key, as in /api/projects")]
    configuration: Name | None = Field(None, description="-c: run configuration, aml_config/NAME.runconfig")
    target: Name | None = Field(None, description="-t: compute target; overrides the run configuration")
    script: Word | None = None
    module: Word | None = None
    command: Word | None = None
    arguments: Annotated[list[Word], Field(max_length=10_000)] = []
    name: Annotated[str, Field(max_length=1000)] | None = None
    tags: Annotated[list[Name], Field(max_length=100)] = []
    gpus: Name | None = Field(None, description="--gpus: 2, all, free, none, 0,2, a UUID, h200, 1:40g")
    timeout: Name | None = Field(None, description="--timeout: 90, 90s, 15m, 2h, 7d")
    key: Annotated[str, Field(max_length=1000)] | None = Field(
        None, description="--key: idempotency key; submitting it again returns the same run"
    )
    locked: Name | None = Field(None, description="--locked: reuse the exact environment of this run")
    environment: Annotated[dict[SecretName, Word], Field(max_length=1000)] = Field(
        {}, description="--env; not for secrets"
    )
    secrets: Annotated[dict[SecretName, SecretStr | None], Field(max_length=100)] = Field(
        {}, description="--secret: name and value; null takes the value from the keyring. Values are never stored"
    )
    sweep: Sweep | None = None
    wait: bool = Field(
        True, description="Respond when the run has been submitted; false: respond at once with the operation"
    )

    @model_validator(mode="after")
    def _fits(self) -> Submission:
        if sum(one is not None for one in (self.script, self.module, self.command)) > 1:
            raise ValueError("script, module, and command are mutually exclusive")
        for one in (self.script, self.module, self.command):
            if one is not None and (not one or one.startswith("-")):
                raise ValueError("script, module, or command is empty or starts with a dash")
        if self.arguments and self.script is None and self.module is None and self.command is None:
            raise ValueError("arguments require a script, module, or command")
        return self


class Submitted(BaseModel):
    """The submitted run. `run` is its ID, null while the operation is in progress. `operation`: see
    /api/operations."""

    operation: str
    errand: str = Field(
        description="Former name of `operation`; removed in 1.0", json_schema_extra={"deprecated": True}
    )
    run: str | None = None
    status: str | None = None


class Preparation(BaseModel):
    """Options of `mlw experiment prepare`."""

    model_config = ConfigDict(extra="forbid")
    project: Annotated[str, Field(min_length=1, max_length=64)]
    configuration: Name | None = None
    target: Name | None = None
    upgrade: bool = Field(False, description="Re-resolve dependencies")
    send_packages: bool = Field(False, description="Upload all packages from this machine")
    unchecked: bool = Field(False, description="Skip compatibility checks")


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["submit"])

    @router.post("/submit", summary="Submit a run (mlw submit --detach)")
    async def submit(asked: Submission) -> Submitted:
        project = await desk.ask(lambda _: desk.projects.open(asked.project))
        wish = Submit(**asked.model_dump(exclude={"project", "secrets", "wait"}), secrets=tuple(asked.secrets))
        # Under names that mlw itself obeys nowhere, whatever the secrets are called.
        given = {name: value.get_secret_value() for name, value in asked.secrets.items() if value is not None}
        values = {HANDED + name: value for name, value in given.items()}
        errand = await desk.errands.start(*wish.words(), cwd=project.root, environment=values)
        if not asked.wait:
            return Submitted(operation=errand.id, errand=errand.id)
        await errand.done.wait()
        return _submitted(errand)

    @router.post("/prepare", summary="Prepare an environment (mlw experiment prepare); see /api/operations")
    async def prepare(asked: Preparation) -> Told:
        project = await desk.ask(lambda _: desk.projects.open(asked.project))
        words = prepare_words(**asked.model_dump(exclude={"project"}))
        return told(await desk.errands.start(*words, cwd=project.root))

    return router


def _submitted(errand: Errand) -> Submitted:
    error = errand.error()
    if error is not None:
        raise error
    found = errand.answer if isinstance(errand.answer, dict) else {}
    return Submitted(operation=errand.id, errand=errand.id, run=found.get("run_id"), status=found.get("status"))
