"""Projects: those that are known, opening and creating one."""

from __future__ import annotations

from fastapi import APIRouter

from ..desk import Desk


def routes(desk: Desk) -> APIRouter:
    return APIRouter(tags=["projects"])
