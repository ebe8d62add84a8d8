"""The compute targets of a project: what they are, how they stand, and all that is done with them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from nicegui import ui

from ....errors import MlwError
from ...desk import Desk
from ...parts.empty import empty
from ...parts.frame import frame, here
from ...parts.trouble import in_words
from .page import TargetsPage


def register(desk: Desk) -> None:
    @ui.page("/p/{key}/targets")
    async def targets(key: str, errand: Annotated[str, Query(max_length=64)] = "") -> None:
        try:
            where = here(desk, key)
        except MlwError as error:
            with frame(desk, "Targets"):
                words, hint = in_words(error)
                empty("error_outline", words, hint or "", top=True)
            return
        with frame(desk, f"Targets of {where.project.name}", where, active="Targets"):
            await TargetsPage(desk, where).show(errand)
