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
    """The options of `mlw submit --sweep`."""

    model_config = ConfigDict(extra="forbid")
    axes: Annotated[list[Word], Field(min_length=1, max_length=100, description="NAME=VALUES, as in lr=0.1,0.01")]
    random: bool = Field(False, description="Draw the values instead of taking all combinations")
    max_runs: int | None = Field(None, ge=1, le=1_000_000)
    parallel: int | None = Field(None, ge=1, le=1_000_000)
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    metric: Name | None = None
    goal: Literal["max", "min"] | None = None


class Submission(BaseModel):
    """What `mlw experiment submit` takes. Exactly one of script, module and command; or none, if the run
    configuration names a script."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    project: Annotated[str, Field(min_length=1, max_length=64, description="Its key, as in /api/projects")]
    configuration: Name | None = Field(None, description="-c: of aml_config/NAME.runconfig")
    target: Name | None = Field(None, description="-t: of aml_config/NAME.compute, in place of the configuration's")
    script: Word | None = None
    module: Word | None = None
    command: Word | None = None
    arguments: Annotated[list[Word], Field(max_length=10_000)] = []
    name: Annotated[str, Field(max_length=1000)] | None = None
    tags: Annotated[list[Name], Field(max_length=100)] = []
    gpus: Name | None = Field(None, description="--gpus: 2, all, free, none, 0,2, a UUID, h200, 1:40g")
    timeout: Name | None = Field(None, description="--timeout: 90, 90s, 15m, 2h, 7d")
    key: Annotated[str, Field(max_length=1000)] | None = Field(None, description="The same key is the same run")
    locked: Name | None = Field(None, description="--locked: in the very environment of this run")
    environment: Annotated[dict[SecretName, Word], Field(max_length=1000)] = Field({}, description="--env, not secret")
    secrets: Annotated[dict[SecretName, SecretStr | None], Field(max_length=100)] = Field(
        {}, description="--secret: name → value, or null for the one in the keyring. Values are written nowhere"
    )
    sweep: Sweep | None = None
    wait: bool = Field(True, description="Answer when the run is put to work; else at once, with the errand")

    @model_validator(mode="after")
    def _fits(self) -> Submission:
        if sum(one is not None for one in (self.script, self.module, self.command)) > 1:
            raise ValueError("script, module and command: only one of them")
        for one in (self.script, self.module, self.command):
            if one is not None and (not one or one.startswith("-")):
                raise ValueError("what to run is empty, or begins with a dash")
        if self.arguments and self.script is None and self.module is None and self.command is None:
            raise ValueError("arguments belong to a script, a module or a command")
        return self


class Submitted(BaseModel):
    """``run`` is its id; null while the errand still goes on."""

    errand: str
    run: str | None = None
    status: str | None = None


class Preparation(BaseModel):
    """What `mlw experiment prepare` takes."""

    model_config = ConfigDict(extra="forbid")
    project: Annotated[str, Field(min_length=1, max_length=64)]
    configuration: Name | None = None
    target: Name | None = None
    upgrade: bool = Field(False, description="Solve the environment anew")
    send_packages: bool = Field(False, description="Send all packages from here")
    unchecked: bool = Field(False, description="Go on even if it cannot work there")


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["submit"])

    @router.post("/submit", summary="Put a run to work, as mlw submit --detach does")
    async def submit(asked: Submission) -> Submitted:
        project = await desk.ask(lambda _: desk.projects.open(asked.project))
        wish = Submit(**asked.model_dump(exclude={"project", "secrets", "wait"}), secrets=tuple(asked.secrets))
        # Under names that mlw itself obeys nowhere, whatever the secrets are called.
        given = {name: value.get_secret_value() for name, value in asked.secrets.items() if value is not None}
        values = {HANDED + name: value for name, value in given.items()}
        errand = await desk.errands.start(*wish.words(), cwd=project.root, environment=values)
        if not asked.wait:
            return Submitted(errand=errand.id)
        await errand.done.wait()
        return _submitted(errand)

    @router.post("/prepare", summary="Make an environment ready, as mlw experiment prepare does; see /api/errands")
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
    return Submitted(errand=errand.id, run=found.get("run_id"), status=found.get("status"))
