"""The page of a run: its head, its tabs, and what keeps both fresh."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import quote, urlencode

from nicegui import ui

from ....errors import MlwError
from ....report.plain import plain
from ...answers import run as answers
from ...desk import Desk
from ...parts.addresses import show_address
from ...parts.empty import empty
from ...parts.frame import Here
from . import code, environment, head, log, metrics, outputs, overview, pictures, spark
from .context import Context

_LOOK = 1.0  # seconds between two questions whether something changed
_TABS: dict[str, tuple[str, Callable[[Context], Awaitable[None]]]] = {
    "overview": ("Overview", overview.show),
    "log": ("Log", log.show),
    "metrics": ("Metrics", metrics.show),
    "outputs": ("Outputs", outputs.show),
    "visualisations": ("Images", pictures.show),
    "environment": ("Environment", environment.show),
    "code": ("Code", code.show),
}


class RunPage:
    """One page of one browser."""

    def __init__(self, desk: Desk, facts: answers.Facts, where: Here | None, asked: dict[str, str]) -> None:
        self._desk = desk
        self._tab = asked.pop("tab", "") if asked.get("tab") in _TABS else "overview"
        self._context = Context(desk, facts, where, {name: value for name, value in asked.items() if name != "tab"})
        self._context.address = self._address
        self._context.again = self._look_again
        self._stamp = facts.stamp()
        self._version = desk.live.version
        self._build: asyncio.Task[None] | None = None  # of the tab

    async def build(self) -> None:
        self._head = ui.element("div").classes("mlw-run-head")
        with ui.tabs() as tabs:
            for name, (title, _) in _TABS.items():
                ui.tab(name, title).props("no-caps")
        tabs.set_value(self._tab)
        tabs.on_value_change(lambda event: self._turn_to(str(event.value)))
        tabs.props("dense align=left no-caps inline-label outside-arrows").classes("mlw-run-tabs")
        self._body = ui.element("div").classes("mlw-run-body")
        self._draw_head()
        await self._draw_body()
        self._follow()
        ui.timer(_LOOK, self._tick)

    def _address(self, **more: str) -> str:
        """Where this view is found again."""
        asked = {"tab": self._tab, **self._context.asked, **more}
        kept = {name: value for name, value in asked.items() if value and (name, value) != ("tab", "overview")}
        query = urlencode(kept, quote_via=quote)
        return f"/runs/{quote(self._context.run.id, safe='')}" + (f"?{query}" if query else "")

    async def _turn_to(self, tab: str) -> None:
        if tab not in _TABS or tab == self._tab:
            return
        self._tab = tab
        self._context.asked = {}
        show_address(self._address())
        await self._draw_body()

    def _draw_head(self) -> None:
        self._head.clear()
        with self._head:
            head.show(self._context)

    async def _draw_body(self) -> None:
        """What still makes the tab before is stopped: its place is gone, and nobody would stop its timers."""
        if self._build is not None:
            self._build.cancel()
        self._body.clear()
        self._context.values.clear()
        self._context.progress = None
        with self._body:
            place = ui.element("div").classes("mlw-run-tab")
        self._build = build = asyncio.create_task(self._fill(place, self._tab))
        try:
            await asyncio.wait([build])
        finally:
            build.cancel()  # also where nobody waits any longer
        if not build.cancelled():
            build.result()

    async def _fill(self, place: ui.element, tab: str) -> None:
        with place:
            try:
                await _TABS[tab][1](self._context)
            except MlwError as error:
                empty("error_outline", plain(error.message, 500), plain(error.hint or "", 500))

    # -- while it goes on ------------------------------------------------------------------------------------

    def _follow(self) -> None:
        if not self._context.run.status.final:
            self._desk.live.follow(self._context.run)

    async def _tick(self) -> None:
        """The desk knows when a run stands otherwise; of those that were not submitted, only the history does."""
        self._follow()
        unwatched = self._context.facts.outside and not self._context.run.status.final
        if self._desk.live.version != self._version or unwatched:
            self._version = self._desk.live.version
            await self._look_again()

    async def _look_again(self) -> None:
        """Draw anew what has changed, and nothing else."""
        try:
            found = await self._desk.ask(answers.look, self._context.run.id)
        except MlwError:
            return  # removed meanwhile: what is shown may still be read
        self._context.facts = found
        for name, _, words in answers.last_values(found.run):
            label = self._context.values.get(name)
            if label is not None and not label.is_deleted:
                label.set_text(words)
        spark.freshen(self._context)
        if found.stamp() != self._stamp:
            self._stamp = found.stamp()
            self._draw_head()
            if self._tab in ("overview", "visualisations") or (self._tab == "outputs" and found.run.status.final):
                await self._draw_body()
        self._follow()
