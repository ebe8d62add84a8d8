"""Endpoint for operations: the output and result of commands that the server started."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from ...errors import UnknownName
from ...failure import Failure
from ..backend import Backend
from ..operation_runner import Operation

_DEPRECATED: JsonDict = {"deprecated": True}


class FailureBody(BaseModel):
    """Why something failed, as `mlw -o json` prints it on standard error."""

    code: str = Field(description="Stable identifier of the kind of failure")
    message: str
    hint: str | None = Field(None, description="What to do")
    explain: str | None = Field(None, description="Name of a page for mlw explain")


class OperationState(BaseModel):
    """An operation: a command that the server started. `lines` begins with the line asked for."""

    id: str
    command: list[str]
    total: int = Field(description="Number of lines so far")
    said: int = Field(description="Former name of `total`; removed in 1.0", json_schema_extra=_DEPRECATED)
    lines: list[str] = Field(description="Lines that the command printed to standard error")
    code: int | None = Field(description="Exit code; null while the command runs")
    answer: Any = Field(None, description="Result of the command: JSON, or text")
    error: str | None = None
    hint: str | None = None
    explain: str | None = Field(None, description="Name of a page for mlw explain")
    failure: FailureBody | None = Field(None, description="Why the command failed; null while it runs or if it did not")
    more: str | None = Field(
        None, description="Former name of `explain`; removed in 1.0", json_schema_extra=_DEPRECATED
    )


def operation_state(operation: Operation, first: int = 0) -> OperationState:
    error = operation.error()
    return OperationState(
        id=operation.id,
        command=["mlw", *operation.arguments],
        total=operation.line_count,
        said=operation.line_count,
        lines=operation.since(first),
        code=operation.exit_code,
        answer=operation.result,
        error=error.message if error else None,
        hint=error.hint if error else None,
        explain=error.more if error else None,
        failure=FailureBody.model_validate(Failure.of(error).to_json()) if error else None,
        more=error.more if error else None,
    )


def routes(backend: Backend) -> APIRouter:
    router = APIRouter(tags=["operations"])

    # /errands is the former name; it will be removed in 1.0.
    @router.get("/errands/{name}", include_in_schema=False)
    @router.get("/operations/{name}", summary="Get the output and result of an operation")
    async def get_operation(
        name: str, first: int = Query(0, ge=0, le=2**53, description="First line, counted from 0")
    ) -> OperationState:
        operation = backend.operations.get(name)
        if operation is None:
            raise UnknownName("operation", name, [])
        return operation_state(operation, first)

    return router
