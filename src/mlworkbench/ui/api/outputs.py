"""The files of a run: outputs, code, environment; served so that nothing in them runs."""

from __future__ import annotations

from fastapi import APIRouter

from ..desk import Desk


def routes(desk: Desk) -> APIRouter:
    return APIRouter(tags=["outputs"])
