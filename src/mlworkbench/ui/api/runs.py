"""Runs: search, look, annotate, cancel, remove."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from ...errors import UsageError
from ..answers import runs
from ..desk import Desk

_MOST = 500  # runs of one request that changes something
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^-]")]
RunName = Annotated[str, Path(max_length=200, description="Run ID or a unique prefix of it")]
Words = list[Annotated[str, Field(max_length=300)]]


class Row(BaseModel):
    """A run in a list. Timestamps are Unix times, durations are in seconds."""

    id: str
    number: int
    name: str
    status: str
    outcome: str  # the status with its ending in few words
    final: bool
    script: str
    arguments: str
    target: str
    project: str
    created: float
    started: float | None
    ended: float | None
    duration: float | None
    gpu: str | None
    tags: list[str]
    note: str
    archived: bool
    parent: str | None
    children: int
    sweep: bool
    values: dict[str, float | int | str | None]  # of the columns that were asked for


class Rows(BaseModel):
    """A page of the matching runs; `total` is the number of all matching runs."""

    rows: list[Row]
    total: int
    offset: int


class Names(BaseModel):
    """Metrics and parameters of the newest runs, most frequent first."""

    metrics: list[str]
    params: list[str]


class Tagging(BaseModel):
    """Tags to add and to remove."""

    runs: list[Name] = Field(min_length=1, max_length=_MOST)
    add: list[Annotated[str, Field(max_length=300)]] = Field([], max_length=50)
    remove: list[Annotated[str, Field(max_length=300)]] = Field([], max_length=50)


class Archiving(BaseModel):
    """Runs to archive, or to unarchive with `archived` false."""

    runs: list[Name] = Field(min_length=1, max_length=_MOST)
    archived: bool = True


class Named(BaseModel):
    """Display name; null restores the name given at submission."""

    name: str | None = Field(max_length=300)


class Noted(BaseModel):
    """A note; null or an empty text removes it."""

    note: str | None = Field(max_length=20_000)


class Done(BaseModel):
    """Confirmation."""

    done: bool = True


class Narrowing(BaseModel):
    """Filters of a list of runs."""

    project: str | None = Field(None, max_length=200, description="Project ID")
    text: str = Field(
        "", max_length=500, description="Search terms; each must occur in the ID, name, script, tags, or note"
    )
    where: str = Field("", max_length=4000, description="Condition, as in mlw history list --where")
    status: Words = Field([], max_length=50)
    target: Words = Field([], max_length=50)
    script: Words = Field([], max_length=50)
    tag: Words = Field([], max_length=50)
    since: str = Field("", max_length=60, description="Earliest start: 30min, 2h, 3d, 2w, or a date")
    parent: str | None = Field(None, max_length=200, description="Only child runs of this run")
    children: bool = Field(False, description="Include child runs of sweeps and nested runs")
    archived: bool = Field(False, description="Include archived runs")

    def wishes(self) -> runs.Wishes:
        return runs.Wishes(
            project=self.project,
            text=self.text,
            where=self.where,
            statuses=self.status,
            targets=self.target,
            scripts=self.script,
            tags=self.tag,
            since=self.since,
            parent=self.parent,
            children=self.children,
            archived=self.archived,
        )


class Listing(Narrowing):
    """Filters, order, and page of a list of runs."""

    sort: str = Field(
        "", max_length=300, description="Column to sort by: a field of the rows, metrics.NAME, or params.NAME"
    )
    descending: bool = False
    offset: int = Field(0, ge=0, le=100_000_000)
    limit: int = Field(100, ge=1, le=runs.LIMIT)
    column: Words = Field(
        [], max_length=50, description="Additional columns, metrics.NAME or params.NAME; returned in `values`"
    )

    def wishes(self) -> runs.Wishes:
        return replace(
            super().wishes(),
            sort=self.sort,
            descending=self.descending,
            offset=self.offset,
            limit=self.limit,
            columns=tuple(self.column),
        )


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["runs"])
    _reading(router, desk)
    _changing(router, desk)
    return router


def _reading(router: APIRouter, desk: Desk) -> None:
    @router.get("/runs/rows", summary="Search runs; newest first by default")
    async def rows(asked: Annotated[Listing, Query()]) -> Rows:
        page = await desk.ask(runs.rows, asked.wishes())
        return Rows(rows=[Row(**one) for one in page.rows], total=page.total, offset=page.offset)

    @router.get("/runs/names", summary="List metric and parameter names")
    async def names(asked: Annotated[Narrowing, Query()]) -> Names:
        return Names(**await desk.ask(runs.names, asked.wishes()))

    @router.get("/runs/{run}", summary="Get all facts about a run (mlw history info -o json)")
    async def one(run: RunName) -> dict[str, Any]:
        return await desk.ask(runs.one, run)


def _changing(router: APIRouter, desk: Desk) -> None:
    @router.post("/runs/tags", summary="Add or remove tags (mlw history tag)")
    async def tag(asked: Tagging) -> Done:
        if not asked.add and not asked.remove:
            raise UsageError("no tags given", "set `add`, `remove`, or both")
        tags = [*(f"--add={one}" for one in asked.add), *(f"--remove={one}" for one in asked.remove)]
        await desk.errands.do("history", "tag", *tags, "--", *asked.runs)
        return Done()

    @router.post("/runs/archive", summary="Archive or unarchive runs (mlw history archive)")
    async def archive(asked: Archiving) -> Done:
        await desk.errands.do("history", "archive", *([] if asked.archived else ["--undo"]), "--", *asked.runs)
        return Done()

    @router.put("/runs/{run}/name", summary="Rename a run (mlw history rename)")
    async def rename(run: RunName, asked: Named) -> Done:
        await desk.errands.do(
            "history", "rename", *(["--clear", "--", run] if asked.name is None else ["--", run, asked.name])
        )
        return Done()

    @router.put("/runs/{run}/note", summary="Set the note of a run (mlw history note)")
    async def note(run: RunName, asked: Noted) -> Done:
        if not (asked.note or "").strip():
            await desk.errands.do("history", "note", "--clear", "--", run)
        else:
            await desk.errands.do("history", "note", "--", run, "-", secret=asked.note)
        return Done()

    @router.post("/runs/{run}/cancel", summary="Cancel a run (mlw cancel)")
    async def cancel(run: RunName) -> Done:
        await desk.errands.do("experiment", "cancel", "--no-wait", "--", run)
        return Done()

    @router.delete("/runs/{run}", summary="Delete a run permanently (mlw history remove)")
    async def remove(run: RunName) -> Done:
        await desk.errands.do("history", "remove", "--yes", "--", run)
        return Done()
