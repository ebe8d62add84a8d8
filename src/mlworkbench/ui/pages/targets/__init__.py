"""Compute targets page of a project."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from ...backend import Backend
from ...components.page_frame import ProjectScope, frame
from ...components.page_setup import project_page
from .page import TargetsPage


def register(backend: Backend) -> None:
    @project_page(backend, "/targets", "Targets")
    async def targets(
        scope: ProjectScope,
        operation: Annotated[str, Query(max_length=64)] = "",
        errand: Annotated[str, Query(max_length=64)] = "",  # former name of ``operation``
    ) -> None:
        with frame(backend, f"Targets of {scope.project.name}", scope, active="Targets"):
            await TargetsPage(backend, scope).show(operation or errand)
