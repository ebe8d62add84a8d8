"""The projects of this user: open, list, look into, forget."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from ...config.project import Project, find_project
from ..answers import dashboard
from ..answers.folders import the_folder
from ..answers.projects import Card, cards
from ..desk import Desk


class LastRun(BaseModel):
    """The newest run of a project."""

    run_id: str
    status: str
    created: float = Field(description="Unix time")


class Listed(BaseModel):
    """A listed project."""

    key: str = Field(description="Project key, used by the other endpoints")
    name: str
    folder: str
    last_run: LastRun | None = None
    problem: str | None = Field(None, description="Why it cannot be opened")


class Shown(BaseModel):
    """A project with its targets and run configurations."""

    key: str
    id: str
    name: str
    folder: str
    targets: list[dashboard.Target]
    run_configurations: list[dashboard.RunConfiguration]


class Wanted(BaseModel):
    """A project folder to open."""

    folder: str = Field(min_length=1, max_length=4000, description="Path on the machine that runs mlw ui")


def listed(card: Card) -> Listed:
    last = card.last
    run = LastRun(run_id=last.id, status=last.status.value, created=last.spec.created) if last else None
    return Listed(key=card.key, name=card.name, folder=str(card.path), last_run=run, problem=card.trouble)


def shown(key: str, project: Project) -> Shown:
    return Shown(
        key=key,
        id=project.id,
        name=project.name,
        folder=str(project.root),
        targets=dashboard.targets(project),
        run_configurations=dashboard.runconfigs(project),
    )


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["projects"])

    @router.get("/projects", summary="List projects")
    async def all_projects() -> list[Listed]:
        return [listed(one) for one in await desk.ask(cards, desk.projects)]

    @router.post("/projects", summary="Open a project folder and add it to the list")
    async def open_project(wanted: Wanted) -> Shown:
        def opened(_: object) -> Shown:

            root = find_project(the_folder(wanted.folder)).root
            known = desk.projects.remember(root)
            return shown(known.key, desk.projects.open(known.key))

        return await desk.ask(opened)

    @router.get("/projects/{key}", summary="Get a project with its targets and run configurations")
    async def one_project(key: str) -> Shown:
        return await desk.ask(lambda _: shown(key, desk.projects.open(key)))

    @router.delete("/projects/{key}", summary="Remove a project from the list; its folder is kept")
    async def forget_project(key: str) -> dict[str, bool]:
        await desk.ask(lambda _: desk.projects.forget(key))
        return {"forgotten": True}

    return router
