"""Endpoints for the log of a run: lines, search, and download."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from ..backend import Backend
from ..queries import logs
from ..security_headers import SANDBOX

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


_MAX_CONCURRENT = 2  # limits log indexing and search: large logs must not occupy all workers


def routes(backend: Backend) -> APIRouter:
    router = APIRouter(tags=["logs"])
    open_logs = logs.Logs()
    slots = asyncio.Semaphore(_MAX_CONCURRENT)

    @router.get("/runs/{run}/log/lines", summary="Get lines of a run log")
    async def lines(run: str, first: First = 0, count: Count = 1000, which: Which = "run") -> Lines:
        async with slots:
            chunk = await backend.call(open_logs.read, run, first, count, which)
        if not chunk.final:  # fetch new lines for this client
            backend.run_poller.heartbeat()
            backend.run_poller.follow(chunk.run)
        return Lines(**{name: getattr(chunk, name) for name in Lines.model_fields})

    @router.get("/runs/{run}/log/find", summary="Search a run log")
    async def find(
        run: str,
        text: Text,
        first: Annotated[int, Query(ge=0, le=2**53, description="First line, counted from 0")] = 0,
        start: Annotated[int, Query(ge=0, le=2**53, description="Byte offset from an earlier response")] = 0,
        which: Which = "run",
    ) -> Hits:
        async with slots:
            hits = await backend.call(open_logs.find, run, text, first, start, which)
        return Hits(lines=hits.lines, more=hits.rest is not None, rest=hits.rest)

    @router.get("/runs/{run}/log/raw", summary="Download the complete log")
    async def raw(run: str, which: Which = "run") -> StreamingResponse:
        name, data = await backend.call(logs.raw, run, which)
        headers = {"content-disposition": f'attachment; filename="{name}"', "content-security-policy": SANDBOX}
        return StreamingResponse(data, media_type="text/plain; charset=utf-8", headers=headers)

    return router
