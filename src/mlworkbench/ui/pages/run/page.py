"""Page of a run: header, tabs, and live updates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import quote, urlencode

from nicegui import ui

from ....errors import MlwError
from ....sanitize import plain
from ...backend import Backend
from ...components.empty_state import empty_state
from ...components.page_frame import ProjectScope
from ...components.page_links import show_address
from ...queries import run as queries
from . import code, environment, header, image_gallery, log, metrics, outputs, overview, spark, traces
from .page_context import RunPageContext

_POLL_INTERVAL = 1.0  # seconds between checks for changes
_TABS: dict[str, tuple[str, Callable[[RunPageContext], Awaitable[None]]]] = {
    "overview": ("Overview", overview.show),
    "log": ("Log", log.show),
    "metrics": ("Metrics", metrics.show),
    "traces": ("Traces", traces.show),
    "outputs": ("Outputs", outputs.show),
    "visualisations": ("Images", image_gallery.show),
    "environment": ("Environment", environment.show),
    "code": ("Code", code.show),
}


class RunPage:
    """Page of a run in a browser tab."""

    def __init__(
        self, backend: Backend, facts: queries.RunFacts, scope: ProjectScope | None, query: dict[str, str]
    ) -> None:
        self._backend = backend
        self._tab = query.pop("tab", "") if query.get("tab") in _TABS else "overview"
        self._context = RunPageContext(
            backend, facts, scope, {name: value for name, value in query.items() if name != "tab"}
        )
        self._context.address = self._address
        self._context.refresh = self._refresh
        self._stamp = facts.stamp()
        self._version = backend.run_poller.version
        self._build_task: asyncio.Task[None] | None = None  # builds the current tab

    async def build(self) -> None:
        self._head = ui.element("div").classes("mlw-run-head")
        with ui.tabs() as tabs:
            for name, (title, _) in _TABS.items():
                if name == "traces" and not self._context.facts.has_mlflow_database:
                    continue  # most scripts record none
                ui.tab(name, title).props("no-caps")
        tabs.set_value(self._tab)
        tabs.on_value_change(lambda event: self._select_tab(str(event.value)))
        tabs.props("dense align=left no-caps inline-label outside-arrows").classes("mlw-run-tabs")
        self._body = ui.element("div").classes("mlw-run-body")
        self._draw_head()
        await self._draw_body()
        self._follow()
        ui.timer(_POLL_INTERVAL, self._poll)

    def _address(self, **more: str) -> str:
        """Return the URL of the current view."""
        parameters = {"tab": self._tab, **self._context.query, **more}
        kept = {name: value for name, value in parameters.items() if value and (name, value) != ("tab", "overview")}
        query = urlencode(kept, quote_via=quote)
        return f"/runs/{quote(self._context.run.id, safe='')}" + (f"?{query}" if query else "")

    async def _select_tab(self, tab: str) -> None:
        if tab not in _TABS or tab == self._tab:
            return
        self._tab = tab
        self._context.query = {}
        show_address(self._address())
        await self._draw_body()

    def _draw_head(self) -> None:
        self._head.clear()
        with self._head:
            header.show(self._context)

    async def _draw_body(self) -> None:
        """Build the current tab.

        Cancel an unfinished build first; otherwise, timers would be created in a deleted element.
        """
        if self._build_task is not None:
            self._build_task.cancel()
        self._body.clear()
        self._context.values.clear()
        self._context.progress = None
        with self._body:
            box = ui.element("div").classes("mlw-run-tab")
        self._build_task = build = asyncio.create_task(self._fill(box, self._tab))
        try:
            await asyncio.wait([build])
        finally:
            build.cancel()  # needed if this coroutine is canceled
        if not build.cancelled():
            build.result()

    async def _fill(self, box: ui.element, tab: str) -> None:
        with box:
            try:
                await _TABS[tab][1](self._context)
            except MlwError as error:
                empty_state("error_outline", plain(error.message, 500), plain(error.hint or "", 500))

    # -- live updates ----------------------------------------------------------------------------------------

    def _follow(self) -> None:
        if not self._context.run.status.final:
            self._backend.run_poller.follow(self._context.run)

    async def _poll(self) -> None:
        """Refresh after a change. A run that was started without mlw reports no changes, so always refresh it."""
        self._follow()
        is_unobserved = self._context.facts.is_untracked and not self._context.run.status.final
        if self._backend.run_poller.version != self._version or is_unobserved:
            self._version = self._backend.run_poller.version
            await self._refresh()

    async def _refresh(self) -> None:
        """Redraw only what has changed."""
        try:
            facts = await self._backend.call(queries.load_run, self._context.run.id)
        except MlwError:
            return  # the run was deleted; keep showing its last state
        self._context.facts = facts
        for name, _, text in queries.last_values(facts.run):
            label = self._context.values.get(name)
            if label is not None and not label.is_deleted:
                label.set_text(text)
        spark.update_progress(self._context)
        if facts.stamp() != self._stamp:
            self._stamp = facts.stamp()
            self._draw_head()
            if self._tab in ("overview", "visualisations") or (self._tab == "outputs" and facts.run.status.final):
                await self._draw_body()
        self._follow()
