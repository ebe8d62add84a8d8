"""Endpoints for runs: search, get, annotate, cancel, and delete."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from ...errors import UsageError
from ..backend import Backend
from ..queries import runs

_MAX_RUNS = 500  # maximum runs per change request
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^-]")]
RunName = Annotated[str, Path(max_length=200, description="Run ID or a unique prefix of it")]
TextList = list[Annotated[str, Field(max_length=300)]]


class Row(BaseModel):
    """A run in a list. Timestamps are Unix times, durations are in seconds."""

    id: str
    number: int
    name: str
    status: str
    outcome: str  # status with a short reason
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
    values: dict[str, float | int | str | None]  # values of the requested columns


class Rows(BaseModel):
    """A page of the matching runs; `total` is the number of all matching runs."""

    rows: list[Row]
    total: int
    offset: int


class Names(BaseModel):
    """Metrics and parameters of the newest runs, most frequent first."""

    metrics: list[str]
    params: list[str]


class TagRequest(BaseModel):
    """Tags to add and to remove."""

    runs: list[Name] = Field(min_length=1, max_length=_MAX_RUNS)
    add: list[Annotated[str, Field(max_length=300)]] = Field([], max_length=50)
    remove: list[Annotated[str, Field(max_length=300)]] = Field([], max_length=50)


class ArchiveRequest(BaseModel):
    """Runs to archive, or to unarchive with `archived` false."""

    runs: list[Name] = Field(min_length=1, max_length=_MAX_RUNS)
    archived: bool = True


class NameRequest(BaseModel):
    """Display name; null restores the name given at submission."""

    name: str | None = Field(max_length=300)


class NoteRequest(BaseModel):
    """A note; null or an empty text removes it."""

    note: str | None = Field(max_length=20_000)


class Done(BaseModel):
    """Confirmation."""

    done: bool = True


class FilterQuery(BaseModel):
    """Filters of a list of runs."""

    project: str | None = Field(None, max_length=200, description="Project ID")
    text: str = Field(
        "", max_length=500, description="Search terms; each must occur in the ID, name, script, tags, or note"
    )
    where: str = Field("", max_length=4000, description="Condition, as in mlw history list --where")
    status: TextList = Field([], max_length=50)
    target: TextList = Field([], max_length=50)
    script: TextList = Field([], max_length=50)
    tag: TextList = Field([], max_length=50)
    since: str = Field("", max_length=60, description="Earliest start: 30min, 2h, 3d, 2w, or a date")
    parent: str | None = Field(None, max_length=200, description="Only child runs of this run")
    children: bool = Field(False, description="Include child runs of sweeps and nested runs")
    archived: bool = Field(False, description="Include archived runs")

    def run_filter(self) -> runs.RunFilter:
        return runs.RunFilter(
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


class ListQuery(FilterQuery):
    """Filters, order, and page of a list of runs."""

    sort: str = Field(
        "", max_length=300, description="Column to sort by: a field of the rows, metrics.NAME, or params.NAME"
    )
    descending: bool = False
    offset: int = Field(0, ge=0, le=100_000_000)
    limit: int = Field(100, ge=1, le=runs.MAX_ROWS)
    column: TextList = Field(
        [], max_length=50, description="Additional columns, metrics.NAME or params.NAME; returned in `values`"
    )

    def run_filter(self) -> runs.RunFilter:
        return replace(
            super().run_filter(),
            sort=self.sort,
            descending=self.descending,
            offset=self.offset,
            limit=self.limit,
            columns=tuple(self.column),
        )


def routes(backend: Backend) -> APIRouter:
    router = APIRouter(tags=["runs"])
    _add_read_routes(router, backend)
    _add_write_routes(router, backend)
    return router


def _add_read_routes(router: APIRouter, backend: Backend) -> None:
    @router.get("/runs/rows", summary="Search runs; newest first by default")
    async def rows(query: Annotated[ListQuery, Query()]) -> Rows:
        page = await backend.call(runs.rows, query.run_filter())
        return Rows(rows=[Row(**row) for row in page.rows], total=page.total, offset=page.offset)

    @router.get("/runs/names", summary="List metric and parameter names")
    async def names(query: Annotated[FilterQuery, Query()]) -> Names:
        return Names(**await backend.call(runs.names, query.run_filter()))

    @router.get("/runs/{run}", summary="Get all facts about a run (mlw history info -o json)")
    async def get_run(run: RunName) -> dict[str, Any]:
        return await backend.call(runs.run_record, run)


def _add_write_routes(router: APIRouter, backend: Backend) -> None:
    @router.post("/runs/tags", summary="Add or remove tags (mlw history tag)")
    async def tag(body: TagRequest) -> Done:
        if not body.add and not body.remove:
            raise UsageError("no tags given", "set `add`, `remove`, or both")
        tags = [*(f"--add={name}" for name in body.add), *(f"--remove={name}" for name in body.remove)]
        await backend.operations.run("history", "tag", *tags, "--", *body.runs)
        return Done()

    @router.post("/runs/archive", summary="Archive or unarchive runs (mlw history archive)")
    async def archive(body: ArchiveRequest) -> Done:
        await backend.operations.run("history", "archive", *([] if body.archived else ["--undo"]), "--", *body.runs)
        return Done()

    @router.put("/runs/{run}/name", summary="Rename a run (mlw history rename)")
    async def rename(run: RunName, body: NameRequest) -> Done:
        await backend.operations.run(
            "history", "rename", *(["--clear", "--", run] if body.name is None else ["--", run, body.name])
        )
        return Done()

    @router.put("/runs/{run}/note", summary="Set the note of a run (mlw history note)")
    async def note(run: RunName, body: NoteRequest) -> Done:
        if not (body.note or "").strip():
            await backend.operations.run("history", "note", "--clear", "--", run)
        else:
            await backend.operations.run("history", "note", "--", run, "-", secret=body.note)
        return Done()

    @router.post("/runs/{run}/cancel", summary="Cancel a run (mlw cancel)")
    async def cancel(run: RunName) -> Done:
        await backend.operations.run("experiment", "cancel", "--no-wait", "--", run)
        return Done()

    @router.delete("/runs/{run}", summary="Delete a run permanently (mlw history remove)")
    async def remove(run: RunName) -> Done:
        await backend.operations.run("history", "remove", "--yes", "--", run)
        return Done()
