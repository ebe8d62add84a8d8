"""The HTTP API: what the pages and other programs of this user ask for."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter


def routes(link: Callable[[], str]) -> APIRouter:
    """All of it, below /api."""
    router = APIRouter()

    @router.post("/link", summary="An address that lets one browser in, once")
    def new_link() -> dict[str, str]:
        return {"link": link()}

    return router
