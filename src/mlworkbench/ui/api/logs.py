"""The log of a run: lines, search, and all its bytes."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from ..answers import logs
from ..desk import Desk
from ..headers import SANDBOX

First = Annotated[int, Query(ge=-(2**53), le=2**53, description="The first line, from 0; below 0 from the end")]
Count = Annotated[int, Query(ge=1, le=5000, description="So many lines at most")]
Text = Annotated[str, Query(min_length=1, max_length=1000, description="What to look for, in upper or lower case")]
Which = Annotated[Literal["run", "build"], Query(description="The script's output, or what preparing it said")]


class Lines(BaseModel):
    """Some lines of a log. Of lines that were written over by carriage returns, what was left."""

    first: int = Field(description="The number of the first one")
    total: int = Field(description="Lines so far")
    lines: list[str]
    final: bool = Field(description="The run has ended: no more come")


class Hits(BaseModel):
    """Numbers of the lines that hold a text."""

    lines: list[int]
    more: bool = Field(description="There may be more behind the last one")


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["logs"])
    known = logs.Logs()

    @router.get("/runs/{run}/log/lines", summary="Some lines of a run's log")
    async def lines(run: str, first: First = 0, count: Count = 1000, which: Which = "run") -> Lines:
        piece = await desk.ask(known.piece, run, first, count, which)
        if not piece.final:  # whoever asks for lines wants those that come, too
            desk.live.attend()
            desk.live.follow(piece.run)
        return Lines(first=piece.first, total=piece.total, lines=piece.lines, final=piece.final)

    @router.get("/runs/{run}/log/find", summary="The lines of a run's log that hold a text")
    async def find(
        run: str, text: Text, first: Annotated[int, Query(ge=0, le=2**53)] = 0, which: Which = "run"
    ) -> Hits:
        return Hits(**vars(await desk.ask(known.find, run, text, first, which)))

    @router.get("/runs/{run}/log/raw", summary="The whole log, byte for byte")
    async def raw(run: str, which: Which = "run") -> StreamingResponse:
        name, data = await desk.ask(logs.raw, run, which)
        headers = {"content-disposition": f'attachment; filename="{name}"', "content-security-policy": SANDBOX}
        return StreamingResponse(data, media_type="text/plain; charset=utf-8", headers=headers)

    return router
