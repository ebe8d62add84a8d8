"""The page itself: what goes on, the cards, and the way to attach another machine."""

from __future__ import annotations

from nicegui import ui

from ....errors import MlwError
from ....report.plain import plain
from ...answers import targets as answers
from ...desk import Desk
from ...errands import Errand
from ...parts.addresses import show_address
from ...parts.attach import AttachDialog
from ...parts.empty import empty
from ...parts.errand import ErrandDialog
from ...parts.frame import Here
from ...parts.trouble import in_words
from .card import CardView
from .clean import CleanDialog


class TargetsPage:
    """What the cards share."""

    def __init__(self, desk: Desk, where: Here) -> None:
        self.desk, self.where = desk, where
        self.watch = desk.gpus
        self._cards: dict[str, CardView] = {}

    async def show(self, errand: str) -> None:
        """``errand``: a command that the address names, which is shown again."""
        with ui.row().classes("mlw-targets-head"):
            with ui.element("h1"):
                ui.label("Compute targets")
            ui.space()
            ui.button("Refresh", icon="refresh", on_click=self.refresh).props("flat no-caps dense")
            ui.button("Clean this machine", icon="cleaning_services", on_click=self._clean).props("flat no-caps dense")
            ui.button("Attach a machine", icon="add_link", on_click=self.attach).props("unelevated no-caps")
        self._strip = ui.column().classes("mlw-going")
        self._place = ui.element("div").classes("mlw-targets")
        await self.refresh()
        self._show_going()
        ui.timer(2.0, self._show_going)
        known = self.desk.errands.find_of(self.where.key, errand) if errand else None
        if known is not None:
            self.look_at(*known)

    async def refresh(self) -> None:
        """Read the files again."""
        try:
            found = await self.desk.ask(answers.cards, self.where.project)
        except MlwError as error:
            words, hint = in_words(error)
            self._place.clear()
            with self._place:
                empty("error_outline", words, hint or "")
            return
        names = [card.name for card in found]
        if names != list(self._cards) or not names:
            self._place.clear()
            with self._place:
                self._cards = {card.name: CardView(self, card) for card in found}
                if not found:
                    words = "Scripts run on compute targets: this machine, or a machine that you reach over SSH."
                    command = "mlw computetarget attach remotedocker --name my_dsvm --address 10.0.0.7"
                    empty("dns", "No compute targets", words, command)
        for card in found:
            await self._cards[card.name].show(card)

    async def attach(self, card: answers.Card | None = None) -> None:
        AttachDialog(self.desk, self.where, self.refresh, card if isinstance(card, answers.Card) else None).open()

    async def _clean(self) -> None:
        await CleanDialog(self.desk, self.where, None).look()

    # -- what goes on ---------------------------------------------------------------------------------------

    def look_at(self, title: str, errand: Errand) -> ErrandDialog:
        """Show a command; the address names it, so that a reload shows it again."""
        address = f"{self.where.address}/targets"
        dialog = ErrandDialog(title, errand, stays=True, hidden=lambda: show_address(address))
        show_address(f"{address}?operation={errand.id}")
        dialog.open()
        return dialog

    def _show_going(self) -> None:
        going = self.desk.errands.going_of(self.where.key)
        names = [errand.id for _, errand in going]
        if names == getattr(self, "_shown", []):
            return
        self._shown = names
        self._strip.clear()
        with self._strip:
            for title, errand in going:
                with ui.row().classes("mlw-going-row"):
                    ui.spinner(size="16px").props("aria-hidden=true")
                    ui.label(plain(title, 200))
                    ui.button("Show", on_click=lambda t=title, e=errand: self.look_at(t, e)).props("flat dense no-caps")
