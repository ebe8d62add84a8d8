"""The log of a run: lines, search, and all its bytes."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from ..answers import logs
from ..desk import Desk
from ..headers import SANDBOX

First = Annotated[
    int, Query(ge=-(2**53), le=2**53, description="First line, counted from 0; negative values count from the end")
]
Count = Annotated[int, Query(ge=1, le=5000, description="Maximum number of lines")]
Text = Annotated[str, Query(min_length=1, max_length=1000, description="Text to search for, ignoring case")]
Which = Annotated[
    Literal["run", "build"], Query(description="`run`: output of the script; `build`: output of the preparation")
]


class Lines(BaseModel):
    """Lines of a log. Of a line rewritten with carriage returns, only the last text is returned."""

    first: int = Field(description="Number of the first line returned")
    total: int = Field(description="Number of lines so far")
    lines: list[str]
    final: bool = Field(description="The run has ended; no more lines will follow")
    gap: int | None = Field(
        None, description="Number of the line that reports omitted output; the end of the log follows it"
    )
    indexing: bool = Field(False, description="Indexing is not finished; it continues with the next request")


class Hits(BaseModel):
    """Numbers of the lines that contain a text."""

    lines: list[int]
    more: bool = Field(description="Not all lines were searched")
    rest: int | None = Field(None, description="Byte offset to pass as `start` to continue")


_AT_ONCE = 2  # requests that index or search logs: large logs must not take all workers from the other pages


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["logs"])
    known = logs.Logs()
    slots = asyncio.Semaphore(_AT_ONCE)

    @router.get("/runs/{run}/log/lines", summary="Get lines of a run log")
    async def lines(run: str, first: First = 0, count: Count = 1000, which: Which = "run") -> Lines:
        async with slots:
            piece = await desk.ask(known.piece, run, first, count, which)
        if not piece.final:  # whoever asks for lines wants those that come, too
            desk.live.attend()
            desk.live.follow(piece.run)
        return Lines(**{name: getattr(piece, name) for name in Lines.model_fields})

    @router.get("/runs/{run}/log/find", summary="Search a run log")
    async def find(
        run: str,
        text: Text,
        first: Annotated[int, Query(ge=0, le=2**53, description="First line, counted from 0")] = 0,
        start: Annotated[int, Query(ge=0, le=2**53, description="Byte offset from an earlier response")] = 0,
        which: Which = "run",
    ) -> Hits:
        async with slots:
            hits = await desk.ask(known.find, run, text, first, start, which)
        return Hits(lines=hits.lines, more=hits.rest is not None, rest=hits.rest)

    @router.get("/runs/{run}/log/raw", summary="Download the complete log")
    async def raw(run: str, which: Which = "run") -> StreamingResponse:
        name, data = await desk.ask(logs.raw, run, which)
        headers = {"content-disposition": f'attachment; filename="{name}"', "content-security-policy": SANDBOX}
        return StreamingResponse(data, media_type="text/plain; charset=utf-8", headers=headers)

    return router
