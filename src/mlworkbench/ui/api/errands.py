"""Commands that were set off: what they say, and how they ended."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from ...errors import UnknownName
from ..desk import Desk
from ..errands import Errand


class Told(BaseModel):
    """An errand from one of its lines on."""

    id: str
    command: list[str]
    said: int  # lines so far
    lines: list[str]
    code: int | None  # None while it goes on
    answer: Any = None
    error: str | None = None
    hint: str | None = None
    more: str | None = None  # a name for mlw explain


def told(errand: Errand, first: int = 0) -> Told:
    error = errand.error()
    return Told(
        id=errand.id,
        command=["mlw", *errand.words],
        said=errand.said,
        lines=errand.since(first),
        code=errand.code,
        answer=errand.answer,
        error=error.message if error else None,
        hint=error.hint if error else None,
        more=error.more if error else None,
    )


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["errands"])

    @router.get("/errands/{name}", summary="What a command has said since a line, and how it ended")
    async def one(name: str, first: int = Query(0, ge=0, le=2**53)) -> Told:
        found = desk.errands.get(name)
        if found is None:
            raise UnknownName("errand", name, [])
        return told(found, first)

    return router
