"""Decorators that register pages. Project pages open the project first, or show why they cannot."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from nicegui import ui

from ...errors import MlwError
from ..backend import Backend
from .empty_state import empty_state
from .error_notice import describe_error
from .page_frame import frame, open_scope

RESPONSE_TIMEOUT = 60.0  # seconds to build a page; disk and history may be slow
PageFunction = Callable[..., Awaitable[None]]
AnyPageFunction = TypeVar("AnyPageFunction", bound=PageFunction)


def app_page(address: str) -> Callable[[AnyPageFunction], AnyPageFunction]:
    """Register a page with a long response timeout: ``@app_page("/runs")``."""
    return ui.page(address, response_timeout=RESPONSE_TIMEOUT)  # type: ignore[return-value]


def project_page(backend: Backend, address: str, title: str) -> Callable[[PageFunction], PageFunction]:
    """Register a page below ``/p/{key}``: ``@project_page(backend, "/files", "Files")``.

    The decorated function receives a ``ProjectScope`` as its first argument.
    """

    def decorate(function: PageFunction) -> PageFunction:
        @functools.wraps(function)
        async def begin(key: str, **parameters: Any) -> None:
            try:
                scope = await backend.call(lambda _: open_scope(backend, key))
            except MlwError as error:
                message, hint = describe_error(error)
                with frame(backend, title):
                    empty_state("error_outline", message, hint or "", top=True)
                return
            await function(scope, **parameters)

        signature = inspect.signature(function)
        first = inspect.Parameter("key", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=str)
        rest = list(signature.parameters.values())[1:]
        begin.__signature__ = signature.replace(parameters=[first, *rest])  # type: ignore[attr-defined]
        return app_page(f"/p/{{key}}{address}")(begin)

    return decorate
