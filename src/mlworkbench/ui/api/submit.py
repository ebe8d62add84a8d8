"""Putting runs to work, and making their environments ready: POST /api/submit and POST /api/prepare."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, SecretStr, create_model, model_validator

from ...request import Request, SweepOptions
from ...resubmit import submit_words
from ...secret import HANDED
from ..answers.words import prepare_words
from ..desk import Desk
from ..errands import Errand
from .errands import Told, told

Name = Annotated[str, Field(min_length=1, max_length=200)]
Word = Annotated[str, Field(max_length=32_768)]
SecretName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]


# What programs may set of a request, with its limits. Consents can be given on the command line only.
_SWEEP: dict[str, Any] = {
    "axes": Annotated[
        list[Word], Field(min_length=1, max_length=100, description="NAME=VALUES, for example lr=0.1,0.01")
    ],
    "random": Annotated[bool, Field(description="Sample random values instead of running all combinations")],
    "max_runs": Annotated[int | None, Field(ge=1, le=1_000_000)],
    "parallel": Annotated[int | None, Field(ge=1, le=1_000_000)],
    "seed": Annotated[int | None, Field(ge=-(2**63), le=2**63 - 1)],
    "metric": Name | None,
    "goal": Literal["max", "min"] | None,
}
_REQUEST: dict[str, Any] = {
    "configuration": Annotated[Name | None, Field(description="-c: run configuration, aml_config/NAME.runconfig")],
    "target": Annotated[Name | None, Field(description="-t: compute target; overrides the run configuration")],
    "script": Word | None,
    "module": Word | None,
    "command": Word | None,
    "arguments": Annotated[list[Word], Field(max_length=10_000)],
    "name": Annotated[str, Field(max_length=1000)] | None,
    "tags": Annotated[list[Name], Field(max_length=100)],
    "gpus": Annotated[Name | None, Field(description="--gpus: 2, all, free, none, 0,2, a UUID, h200, 1:40g")],
    "timeout": Annotated[Name | None, Field(description="--timeout: 90, 90s, 15m, 2h, 7d")],
    "key": Annotated[
        Annotated[str, Field(max_length=1000)] | None,
        Field(description="--key: idempotency key; submitting it again returns the same run"),
    ],
    "locked": Annotated[Name | None, Field(description="--locked: reuse the exact environment of this run")],
    "environment": Annotated[dict[SecretName, Word], Field(max_length=1000, description="--env; not for secrets")],
    "secrets": Annotated[
        dict[SecretName, SecretStr | None],
        Field(
            max_length=100,
            description="--secret: name and value; null takes the value from the keyring. Values are never stored",
        ),
    ],
}


def _fields(kind: type[Request | SweepOptions], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a dataclass for ``create_model``: the limits are ours, the names and defaults are those of ``kind``."""
    known = {one.name: one for one in fields(kind)}
    return {name: (limit, _default(known[name])) for name, limit in limits.items()}


def _default(known: dataclasses.Field[Any]) -> Any:
    if known.default_factory is not MISSING:
        return known.default_factory()
    return ... if known.default is MISSING else known.default


class _Submission(BaseModel):
    """Options of `mlw experiment submit`. Set one of script, module, and command, or none of them if the run
    configuration names a script."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    project: Annotated[str, Field(min_length=1, max_length=64, description="Project key, as in /api/projects")]
    wait: bool = Field(
        True, description="Respond when the run has been submitted; false: respond at once with the operation"
    )

    def request(self) -> Request:
        """What is asked for, with the values of secrets."""
        given = {name: getattr(self, name) for name in _REQUEST}
        secrets = {name: value and value.get_secret_value() for name, value in given.pop("secrets").items()}
        sweep = getattr(self, "sweep", None)
        return Request(**given, secrets=secrets, sweep=sweep and SweepOptions(**sweep.model_dump()))

    @model_validator(mode="after")
    def _fits(self) -> _Submission:
        request = self.request()
        named = [one for one in (request.script, request.module, request.command) if one is not None]
        if len(named) > 1:
            raise ValueError("script, module, and command are mutually exclusive")
        if any(not one or one.startswith("-") for one in named):
            raise ValueError("script, module, or command is empty or starts with a dash")
        if request.arguments and not named:
            raise ValueError("arguments require a script, module, or command")
        return self


if TYPE_CHECKING:
    Submission = _Submission
else:
    Sweep = create_model(
        "Sweep",
        __doc__="Options of `mlw submit --sweep`.",
        __config__=ConfigDict(extra="forbid"),
        **_fields(SweepOptions, _SWEEP),
    )
    Submission = create_model(
        "Submission",
        __doc__=_Submission.__doc__,
        __base__=_Submission,
        **_fields(Request, {**_REQUEST, "sweep": Sweep | None}),
    )


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
        request = asked.request()
        # Under names that mlw itself obeys nowhere, whatever the secrets are called.
        values = {HANDED + name: value for name, value in request.secret_values.items()}
        errand = await desk.errands.start(*submit_words(request), cwd=project.root, environment=values)
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
