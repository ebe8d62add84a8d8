"""The files of a project: tree, text, saving, what is wrong in them."""

from __future__ import annotations

from fastapi import APIRouter

from ..desk import Desk


def routes(desk: Desk) -> APIRouter:
    return APIRouter(tags=["files"])
