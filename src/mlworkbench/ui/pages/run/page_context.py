"""State shared by the tabs of a run page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import quote

from nicegui import ui

from ....model import Run
from ...backend import Backend
from ...components.page_frame import ProjectScope
from ...components.page_links import show_address
from ...queries.run import RunFacts


async def _do_nothing() -> None:
    return


@dataclass
class RunPageContext:
    """Shared state of a run page.

    ``query`` contains the query parameters of the URL except the tab. Use ``update_query`` to change
    them.
    """

    backend: Backend
    facts: RunFacts
    scope: ProjectScope | None
    query: dict[str, str]
    values: dict[str, ui.label] = field(default_factory=dict)  # last-value labels, by metric
    progress: ui.label | None = None  # label with a Spark application's progress
    address: Callable[..., str] = lambda **more: ""
    refresh: Callable[[], Awaitable[None]] = _do_nothing

    @property
    def run(self) -> Run:
        return self.facts.run

    @property
    def api(self) -> str:
        return f"/api/runs/{quote(self.run.id, safe='')}"

    def update_query(self, **parameters: str) -> None:
        """Update query parameters and the URL in the address bar."""
        self.query.update(parameters)
        show_address(self.address())
