"""The log of a run: lines, search, and all its bytes."""

from __future__ import annotations

from fastapi import APIRouter

from ..desk import Desk


def routes(desk: Desk) -> APIRouter:
    return APIRouter(tags=["logs"])
