"""The HTTP API: what the pages and other programs of this user ask for. One file for each kind of thing."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from ...errors import ConfigError, HostError, MlwError, UnknownName, UsageError
from ..desk import Desk
from ..gate import is_gone
from . import errands, files, logs, metrics, outputs, projects, runs, targets

log = logging.getLogger("mlworkbench.ui")
_PARTS = (runs, logs, metrics, outputs, projects, files, targets, errands)
_STATUS = {UnknownName: 404, UsageError: 400, ConfigError: 422, HostError: 502}


def install(app: FastAPI, desk: Desk, link: Callable[[], str]) -> None:
    """All of it, below /api."""

    async def attend(request: Request) -> None:
        """Programs look on as pages do: what they ask about is kept fresh."""
        desk.live.attend(request.path_params.get("run"))

    for part in _PARTS:
        app.include_router(part.routes(desk), prefix="/api", dependencies=[Depends(attend)])
    app.include_router(_doors(link), prefix="/api")
    app.add_api_route("/api/{rest:path}", _nothing, methods=["GET", "POST", "PUT", "DELETE"], include_in_schema=False)
    app.add_exception_handler(MlwError, _told)
    app.add_exception_handler(RequestValidationError, _unfit)
    app.add_exception_handler(Exception, _fault)


def _doors(link: Callable[[], str]) -> APIRouter:
    router = APIRouter(tags=["server"])

    @router.post("/link", summary="Create a single-use login link")
    def new_link() -> dict[str, str]:
        return {"link": link()}

    return router


async def _nothing(rest: str) -> JSONResponse:
    hint = "see /api/openapi.json for the available endpoints"
    return JSONResponse({"error": "no such endpoint", "hint": hint, "code": UnknownName.code}, 404)


async def _told(request: Request, error: Exception) -> JSONResponse:
    """One sentence and a hint, as on the command line."""
    assert isinstance(error, MlwError)
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 409)
    # "more" is the former name of "explain"; it goes away with 1.0.
    page = {"explain": error.more, "more": f"mlw explain {error.more}"} if error.more else {}
    return JSONResponse({"error": error.message, "hint": error.hint, "code": error.code, **page}, status)


async def _unfit(request: Request, error: Exception) -> JSONResponse:
    """Which word does not fit and why; never the body itself, as FastAPI would: it may hold a password."""
    assert isinstance(error, RequestValidationError)
    told = [f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in error.errors()]
    words = "; ".join(told) or "invalid request"
    hint = "see /api/openapi.json for the request format"
    return JSONResponse({"error": words[:2000], "hint": hint, "code": UsageError.code}, 422)


async def _fault(request: Request, error: Exception) -> JSONResponse:
    """One of ours. It may name paths and variables, so the log has it and not the answer."""
    name = secrets.token_hex(4)
    if not await is_gone(request.scope):  # else the application was interrupted, and that is no fault
        log.error("error %s", name, exc_info=error)
    message = f"internal error {name}; see the log of mlw ui for details"
    return JSONResponse({"error": message, "hint": None, "code": "internal-error"}, 500)
