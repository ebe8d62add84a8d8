"""How pages begin: with time to be made, and those of a project with the project, or with words why there is none."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from nicegui import ui

from ...errors import MlwError
from ..desk import Desk
from .empty import empty
from .frame import frame, here
from .trouble import in_words

PATIENCE = 60.0  # seconds for a page to be made; a disk or a history may be slow
Show = Callable[..., Awaitable[None]]
AnyShow = TypeVar("AnyShow", bound=Show)


def our_page(address: str) -> Callable[[AnyShow], AnyShow]:
    """``ui.page`` for us all: ``@our_page("/runs")``."""
    return ui.page(address, response_timeout=PATIENCE)  # type: ignore[return-value]


def project_page(desk: Desk, address: str, title: str) -> Callable[[Show], Show]:
    """One below ``/p/{key}``: ``@project_page(desk, "/files", "Files")``. Its function gets a ``Here`` first."""

    def decorate(show: Show) -> Show:
        @functools.wraps(show)
        async def begin(key: str, **asked: Any) -> None:
            try:
                where = await desk.ask(lambda _: here(desk, key))
            except MlwError as error:
                words, hint = in_words(error)
                with frame(desk, title):
                    empty("error_outline", words, hint or "", top=True)
                return
            await show(where, **asked)

        known = inspect.signature(show)
        first = inspect.Parameter("key", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=str)
        rest = list(known.parameters.values())[1:]
        begin.__signature__ = known.replace(parameters=[first, *rest])  # type: ignore[attr-defined]
        return our_page(f"/p/{{key}}{address}")(begin)

    return decorate
