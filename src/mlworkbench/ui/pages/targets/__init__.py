"""The compute targets of a project: what they are, how they stand, and all that is done with them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from ...desk import Desk
from ...parts.frame import Here, frame
from ...parts.opening import project_page
from .page import TargetsPage


def register(desk: Desk) -> None:
    @project_page(desk, "/targets", "Targets")
    async def targets(
        where: Here,
        operation: Annotated[str, Query(max_length=64)] = "",
        errand: Annotated[str, Query(max_length=64)] = "",  # its former name
    ) -> None:
        with frame(desk, f"Targets of {where.project.name}", where, active="Targets"):
            await TargetsPage(desk, where).show(operation or errand)
