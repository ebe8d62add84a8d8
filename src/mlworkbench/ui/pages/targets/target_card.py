"""One target: its state, its machine, its GPUs, what uses it, and what can be done with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from nicegui import ui

from ....errors import MlwError
from ....report.plain import plain
from ....targets.check import ERROR, OK, WARNING, Finding
from ...answers import targets as answers
from ...parts.findings import facts_list
from ...parts.gauges import Gauges
from ...parts.when import When
from . import dialogs
from .clean import CleanDialog
from .environments import EnvironmentsDialog

if TYPE_CHECKING:
    from .page import TargetsPage

Act = Callable[[], Awaitable[object]]


class CardView:
    """Built at once from what is known here; ``show`` adds what takes a moment, and draws anew only what changed."""

    def __init__(self, page: TargetsPage, card: answers.Card) -> None:
        self.page, self.card = page, card
        self._stale = False
        self._section = ui.element("section").classes("mlw-card mlw-target")
        self._section._props["aria-label"] = plain(card.name, 200)
        self._draw()

    def _draw(self) -> None:
        page, card = self.page, self.card
        self._section.clear()
        self._gauges: Gauges | None = None
        with self._section:
            self._head()
            if card.trouble:
                self._trouble()
            if card.compute is not None and (card.attached or not card.elsewhere):
                self._gauges = Gauges(page.where.key, card.name, card.elsewhere).classes("mlw-full")
            self._facts = ui.column().classes("mlw-full")
            self._uses()

    async def show(self, card: answers.Card) -> None:
        """The facts, too; those of this machine are looked for now."""
        if card != self.card or self._stale:
            self.card, self._stale = card, False
            self._draw()
        found = list(self.card.findings)
        if self.card.compute is not None and not self.card.elsewhere:
            desk, look = self.page.desk, self.page.watch.facts_here
            try:
                found = await desk.ask(answers.findings_here, self.page.where.project, self.card.name, look)
            except MlwError:
                return  # the gauges say that nothing can be had of it
        found = [one for one in found if self._matters(one)]
        self._judge(found)
        self._facts.clear()
        with self._facts:
            facts_list([asdict(one) for one in found])

    def _judge(self, found: list[Finding]) -> None:
        """The worst of them is what the headline says."""
        worst = next((one for state in (ERROR, WARNING) for one in found if one.state == state), None)
        if self._gauges is not None and not self._gauges.is_deleted:
            words = f"problem with {plain(worst.what, 60)}, see below" if worst else ""
            self._gauges.judge(worst.state if worst else "", words)

    def _matters(self, one: Finding) -> bool:
        """An engine in trouble is no news of a target that needs none; Check tells of it."""
        return self.card.contained or one.state == OK or one.what not in ("docker", "podman")

    # -- parts ----------------------------------------------------------------------------------------------

    def _head(self) -> None:
        card = self.card
        with ui.row().classes("mlw-target-head"):
            ui.icon("dns" if card.elsewhere else "computer").props("aria-hidden=true").classes("mlw-target-icon")
            with ui.element("h2"):
                ui.label(plain(card.name, 200))
            ui.label(plain(card.type or "unreadable", 60)).classes("mlw-target-kind")
            ui.space()
            self._actions()
        with ui.row().classes("mlw-target-line"):
            if card.address:
                ui.label(plain(card.address, 300)).classes("mlw-mono")
            if card.attached is not None:
                bad = any(one.state == ERROR and self._matters(one) for one in card.findings)
                with ui.row().classes("mlw-status mlw-idle" if bad else "mlw-status mlw-good"):
                    ui.icon("link").props("aria-hidden=true")
                    ui.label("attached")
                if card.attached.checked:
                    ui.label("last checked").classes("mlw-faint")
                    When(card.attached.checked).classes("mlw-faint")
            elif card.elsewhere:
                with ui.row().classes("mlw-status mlw-idle"):
                    ui.icon("link_off").props("aria-hidden=true")
                    ui.label("not attached")

    def _actions(self) -> None:
        card = self.card
        if card.compute is None:
            return
        if card.elsewhere and card.attached is None:
            self._button("Attach", "add_link", lambda: self.page.attach(card))
            self._menu([("Detach and delete files", "link_off", self._detach)])
            return
        self._button("Check", "fact_check", lambda: dialogs.check(self))
        self._prepare()
        more: list[tuple[str, str, Act]] = [
            ("Clean", "cleaning_services", self._clean),
            ("Environments", "inventory_2", self._environments),
        ]
        if card.elsewhere:
            more += [
                ("Allowed mounts", "folder_shared", lambda: dialogs.consents(self, dialogs.MOUNTS)),
                ("Allowed networks", "lan", lambda: dialogs.consents(self, dialogs.NETWORKS)),
                ("Reset key", "key", lambda: dialogs.reset_key(self)),
                ("Detach", "link_off", self._detach),
            ]
        self._menu(more)

    def _button(self, word: str, icon: str, act: Act) -> None:
        button = ui.button(word, icon=icon, on_click=self._outside(act)).props("flat dense no-caps")
        button._props["aria-label"] = f"{word} {plain(self.card.name, 200)}"

    def _outside(self, act: Act) -> Act:
        """What it opens belongs to the page: cards are drawn anew while it is open."""

        async def acted() -> None:
            with self._section.client:
                await act()

        return acted

    def _prepare(self) -> None:
        names = [use.name for use in self.card.uses]
        if len(names) == 1:
            self._button("Prepare", "build", lambda: dialogs.prepare(self, names[0]))
            return
        if not names:
            return
        with ui.button("Prepare", icon="build").props("flat dense no-caps") as button, ui.menu():
            button._props["aria-label"] = f"Prepare {plain(self.card.name, 200)}"
            for name in names:
                act = self._outside(partial(dialogs.prepare, self, name))
                ui.menu_item(plain(name, 100), on_click=act).props("role=menuitem")

    def _menu(self, acts: list[tuple[str, str, Act]]) -> None:
        with ui.button(icon="more_vert").props("flat dense round") as button, ui.menu():
            button._props["aria-label"] = f"More for {plain(self.card.name, 200)}"
            for word, icon, act in acts:
                with ui.menu_item(on_click=self._outside(act)).props("role=menuitem"):
                    with ui.item_section().props("avatar"):
                        ui.icon(icon).props("aria-hidden=true")
                    with ui.item_section():
                        ui.label(word)

    def _trouble(self) -> None:
        with ui.column().classes("mlw-target-trouble"):
            ui.label(plain(self.card.trouble or "", 1000)).classes("mlw-said mlw-warn")
            if self.card.hint:
                ui.label(plain(self.card.hint, 1000)).classes("mlw-said mlw-faint")

    def _uses(self) -> None:
        key = self.page.where.key
        known = self.card.attached
        for title, allowed in (("Mounts", known.mounts), ("Networks", known.networks)) if known else ():
            if allowed:
                with ui.row().classes("mlw-uses"):
                    ui.label(title).classes("mlw-faint")
                    for text in allowed:
                        ui.label(plain(text, 200)).classes("mlw-mono")
        with ui.row().classes("mlw-uses"):
            ui.label("File").classes("mlw-faint")
            ui.link(plain(self.card.file, 300), answers.file_address(key, self.card.file)).classes("mlw-mono")
        with ui.row().classes("mlw-uses"):
            ui.label("Used by").classes("mlw-faint")
            for use in self.card.uses:
                ui.link(plain(use.name, 200), answers.file_address(key, use.file)).classes("mlw-mono")
            if not self.card.uses:
                ui.label("no run configurations").classes("mlw-faint")

    # -- acts -----------------------------------------------------------------------------------------------

    async def let_go(self) -> None:
        """Of the connection by which the GPUs are asked for. They are asked for again when the card is drawn anew."""
        if self._gauges is not None and not self._gauges.is_deleted:
            self._gauges.delete()
            self._stale = True
        if self.card.compute is not None:
            await self.page.watch.let_go(self.card.compute)

    async def _clean(self) -> None:
        target = self.card.name if self.card.elsewhere else None
        await CleanDialog(self.page.desk, self.page.where, target).look()

    async def _environments(self) -> None:
        target = self.card.name if self.card.elsewhere else None
        await EnvironmentsDialog(self.page.desk, self.page.where, target).look()

    async def _detach(self) -> None:
        await dialogs.detach(self)
