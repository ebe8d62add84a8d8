"""HTTP API for the pages and for the user's programs, with one module per subject."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from ...errors import ConfigError, HostError, MlwError, UnknownName, UsageError
from ..auth_middleware import is_disconnected
from ..backend import Backend
from . import files, logs, metrics, operations, outputs, projects, runs, targets

log = logging.getLogger("mlworkbench.ui")
_MODULES = (runs, logs, metrics, outputs, projects, files, targets, operations)
_STATUS = {UnknownName: 404, UsageError: 400, ConfigError: 422, HostError: 502}


def install(app: FastAPI, backend: Backend, link: Callable[[], str]) -> None:
    """Add all endpoints below /api."""

    async def send_heartbeat(request: Request) -> None:
        """Keep the requested data fresh, as an open page does."""
        backend.run_poller.heartbeat(request.path_params.get("run"))

    for module in _MODULES:
        app.include_router(module.routes(backend), prefix="/api", dependencies=[Depends(send_heartbeat)])
    app.include_router(_server_routes(link), prefix="/api")
    app.add_api_route("/api/{rest:path}", _not_found, methods=["GET", "POST", "PUT", "DELETE"], include_in_schema=False)
    app.add_exception_handler(MlwError, _handle_mlw_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(Exception, _handle_internal_error)


def _server_routes(link: Callable[[], str]) -> APIRouter:
    router = APIRouter(tags=["server"])

    @router.post("/link", summary="Create a single-use login link")
    def new_link() -> dict[str, str]:
        return {"link": link()}

    return router


async def _not_found(rest: str) -> JSONResponse:
    hint = "see /api/openapi.json for the available endpoints"
    return JSONResponse({"error": "no such endpoint", "hint": hint, "code": UnknownName.code}, 404)


async def _handle_mlw_error(request: Request, error: Exception) -> JSONResponse:
    """Respond with a message and a hint, as on the command line."""
    assert isinstance(error, MlwError)
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 409)
    # "more" is the former name of "explain"; it will be removed in 1.0.
    page = {"explain": error.more, "more": f"mlw explain {error.more}"} if error.more else {}
    return JSONResponse({"error": error.message, "hint": error.hint, "code": error.code, **page}, status)


async def _handle_validation_error(request: Request, error: Exception) -> JSONResponse:
    """Respond with the invalid fields, but without the body, which may contain a password."""
    assert isinstance(error, RequestValidationError)
    problems = [f"{'.'.join(map(str, item['loc'][1:]))}: {item['msg']}" for item in error.errors()]
    message = "; ".join(problems) or "invalid request"
    hint = "see /api/openapi.json for the request format"
    return JSONResponse({"error": message[:2000], "hint": hint, "code": UsageError.code}, 422)


async def _handle_internal_error(request: Request, error: Exception) -> JSONResponse:
    """Log an internal error. The response omits it, since it may contain paths and variables."""
    error_id = secrets.token_hex(4)
    if not await is_disconnected(request.scope):  # errors after a disconnect are expected
        log.error("error %s", error_id, exc_info=error)
    message = f"internal error {error_id}; see the log of mlw ui for details"
    return JSONResponse({"error": message, "hint": None, "code": "internal-error"}, 500)
