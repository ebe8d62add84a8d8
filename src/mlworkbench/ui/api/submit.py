"""Endpoints POST /api/submit and POST /api/prepare."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, SecretStr, create_model, model_validator

from ...remote.shared.retry_causes import CAUSES, MAX_RETRIES
from ...resubmit import submit_words
from ...secret_sources import PASSED_PREFIX
from ...submit_request import Request, SweepOptions
from ..backend import Backend
from ..operation_arguments import prepare_arguments
from ..operation_runner import Operation
from .operations import OperationState, operation_state

Name = Annotated[str, Field(min_length=1, max_length=200)]
LongText = Annotated[str, Field(max_length=32_768)]
SecretName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]


# Request fields that programs may set, with their limits. Consents can only be given on the command line.
_SWEEP_LIMITS: dict[str, Any] = {
    "axes": Annotated[
        list[LongText], Field(min_length=1, max_length=100, description="NAME=VALUES, for example lr=0.1,0.01")
    ],
    "random": Annotated[bool, Field(description="Sample random values instead of running all combinations")],
    "max_runs": Annotated[int | None, Field(ge=1, le=1_000_000)],
    "parallel": Annotated[int | None, Field(ge=1, le=1_000_000)],
    "seed": Annotated[int | None, Field(ge=-(2**63), le=2**63 - 1)],
    "metric": Name | None,
    "goal": Literal["max", "min"] | None,
}
_REQUEST_LIMITS: dict[str, Any] = {
    "configuration": Annotated[Name | None, Field(description="-c: run configuration, aml_config/NAME.runconfig")],
    "target": Annotated[Name | None, Field(description="-t: compute target; overrides the run configuration")],
    "script": LongText | None,
    "module": LongText | None,
    "command": LongText | None,
    "arguments": Annotated[list[LongText], Field(max_length=10_000)],
    "name": Annotated[str, Field(max_length=1000)] | None,
    "tags": Annotated[list[Name], Field(max_length=100)],
    "gpus": Annotated[Name | None, Field(description="--gpus: 2, all, free, none, 0,2, a UUID, h200, 1:40g")],
    "launcher": Annotated[Literal["none", "torchrun", "mpiexec", "accelerate"] | None, Field(description="--launcher")],
    "processes": Annotated[Name | None, Field(description="--processes: a number, or gpu for one per allocated GPU")],
    "timeout": Annotated[Name | None, Field(description="--timeout: 90, 90s, 15m, 2h, 7d")],
    "retries": Annotated[int | None, Field(ge=0, le=MAX_RETRIES, description="--retries: attempts after a failure")],
    "retry_on": Annotated[
        list[Annotated[str, Field(pattern="^(" + "|".join(CAUSES) + ")$")]], Field(description="--retry-on")
    ],
    "retry_delay": Annotated[Name | None, Field(description="--retry-delay: 10s, 5m; doubles with each attempt")],
    "resume": Annotated[Name | None, Field(description="--resume: start with the checkpoints of this run")],
    "key": Annotated[
        Annotated[str, Field(max_length=1000)] | None,
        Field(description="--key: idempotency key; submitting it again returns the same run"),
    ],
    "locked": Annotated[Name | None, Field(description="--locked: reuse the exact environment of this run")],
    "environment": Annotated[
        dict[SecretName, LongText | None],
        Field(
            max_length=1000,
            description="--env: name and value; null takes the value from the server's environment. Not for secrets",
        ),
    ],
    "secrets": Annotated[
        dict[SecretName, SecretStr | None],
        Field(
            max_length=100,
            description="--secret: name and value; null takes the value from the keyring. Values are never stored",
        ),
    ],
}


def _fields(kind: type[Request | SweepOptions], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields for ``create_model``.

    Names and defaults come from ``kind``, and types and limits from ``limits``.
    """
    fields_by_name = {field.name: field for field in fields(kind)}
    return {name: (limit, _default(fields_by_name[name])) for name, limit in limits.items()}


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return ... if field.default is MISSING else field.default


class _Submission(BaseModel):
    """Options of `mlw experiment submit`. Set one of script, module, and command, or none of them if the run
    configuration names a script."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    project: Annotated[str, Field(min_length=1, max_length=64, description="Project key, as in /api/projects")]
    wait: bool = Field(
        True, description="Respond when the run has been submitted; false: respond at once with the operation"
    )

    def request(self) -> Request:
        """Return the submission request, including secret values."""
        values = {name: getattr(self, name) for name in _REQUEST_LIMITS}
        secrets = {name: value and value.get_secret_value() for name, value in values.pop("secrets").items()}
        sweep = getattr(self, "sweep", None)
        return Request(**values, secrets=secrets, sweep=sweep and SweepOptions(**sweep.model_dump()))

    @model_validator(mode="after")
    def _check_entry(self) -> _Submission:
        request = self.request()
        entries = [entry for entry in (request.script, request.module, request.command) if entry is not None]
        if len(entries) > 1:
            raise ValueError("script, module, and command are mutually exclusive")
        if any(not entry or entry.startswith("-") for entry in entries):
            raise ValueError("script, module, or command is empty or starts with a dash")
        if request.arguments and not entries:
            raise ValueError("arguments require a script, module, or command")
        return self


if TYPE_CHECKING:
    Submission = _Submission
else:
    Sweep = create_model(
        "Sweep",
        __doc__="Options of `mlw submit --sweep`.",
        __config__=ConfigDict(extra="forbid"),
        **_fields(SweepOptions, _SWEEP_LIMITS),
    )
    Submission = create_model(
        "Submission",
        __doc__=_Submission.__doc__,
        __base__=_Submission,
        **_fields(Request, {**_REQUEST_LIMITS, "sweep": Sweep | None}),
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


def routes(backend: Backend) -> APIRouter:
    router = APIRouter(tags=["submit"])

    @router.post("/submit", summary="Submit a run (mlw submit --detach)")
    async def submit(submission: Submission) -> Submitted:
        project = await backend.call(lambda _: backend.projects.open(submission.project))
        request = submission.request()
        # The prefix prevents secrets from overriding variables that mlw itself reads.
        values = {PASSED_PREFIX + name: value for name, value in request.secret_values.items()}
        operation = await backend.operations.start(*submit_words(request), cwd=project.root, environment=values)
        if not submission.wait:
            return Submitted(operation=operation.id, errand=operation.id)
        await operation.done.wait()
        return _submission_result(operation)

    @router.post("/prepare", summary="Prepare an environment (mlw experiment prepare); see /api/operations")
    async def prepare(preparation: Preparation) -> OperationState:
        project = await backend.call(lambda _: backend.projects.open(preparation.project))
        arguments = prepare_arguments(**preparation.model_dump(exclude={"project"}))
        return operation_state(await backend.operations.start(*arguments, cwd=project.root))

    return router


def _submission_result(operation: Operation) -> Submitted:
    error = operation.error()
    if error is not None:
        raise error
    result = operation.result if isinstance(operation.result, dict) else {}
    return Submitted(operation=operation.id, errand=operation.id, run=result.get("run_id"), status=result.get("status"))
