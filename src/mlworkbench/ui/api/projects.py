"""Endpoints for the user's projects: list, open, get, and remove."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from ...config.project_folder import Project, find_project
from ..backend import Backend
from ..queries import dashboard
from ..queries.folder_suggestions import resolve_folder
from ..queries.projects import Card, cards


class LastRun(BaseModel):
    """The newest run of a project."""

    run_id: str
    status: str
    created: float = Field(description="Unix time")


class ProjectSummary(BaseModel):
    """A listed project."""

    key: str = Field(description="Project key, used by the other endpoints")
    name: str
    folder: str
    last_run: LastRun | None = None
    problem: str | None = Field(None, description="Why it cannot be opened")


class ProjectDetails(BaseModel):
    """A project with its targets and run configurations."""

    key: str
    id: str
    name: str
    folder: str
    targets: list[dashboard.Target]
    run_configurations: list[dashboard.RunConfiguration]


class OpenRequest(BaseModel):
    """A project folder to open."""

    folder: str = Field(min_length=1, max_length=4000, description="Path on the machine that runs mlw ui")


def project_summary(card: Card) -> ProjectSummary:
    last = card.last
    run = LastRun(run_id=last.id, status=last.status.value, created=last.spec.created) if last else None
    return ProjectSummary(key=card.key, name=card.name, folder=str(card.path), last_run=run, problem=card.trouble)


def project_details(key: str, project: Project) -> ProjectDetails:
    return ProjectDetails(
        key=key,
        id=project.id,
        name=project.name,
        folder=str(project.root),
        targets=dashboard.targets(project),
        run_configurations=dashboard.runconfigs(project),
    )


def routes(backend: Backend) -> APIRouter:
    router = APIRouter(tags=["projects"])

    @router.get("/projects", summary="List projects")
    async def list_projects() -> list[ProjectSummary]:
        return [project_summary(card) for card in await backend.call(cards, backend.projects)]

    @router.post("/projects", summary="Open a project folder and add it to the list")
    async def open_project(body: OpenRequest) -> ProjectDetails:
        def add_and_open(_: object) -> ProjectDetails:

            root = find_project(resolve_folder(body.folder)).root
            entry = backend.projects.add(root)
            return project_details(entry.key, backend.projects.open(entry.key))

        return await backend.call(add_and_open)

    @router.get("/projects/{key}", summary="Get a project with its targets and run configurations")
    async def get_project(key: str) -> ProjectDetails:
        return await backend.call(lambda _: project_details(key, backend.projects.open(key)))

    @router.delete("/projects/{key}", summary="Remove a project from the list; its folder is kept")
    async def forget_project(key: str) -> dict[str, bool]:
        await backend.call(lambda _: backend.projects.forget(key))
        return {"forgotten": True}

    return router
