"""Content of the targets page: operations in progress, target cards, and the attach button."""

from __future__ import annotations

from nicegui import ui

from ....errors import MlwError
from ....sanitize import plain
from ...backend import Backend
from ...components.attach_dialog import AttachDialog
from ...components.empty_state import empty_state
from ...components.error_notice import describe_error
from ...components.operation_view import OperationDialog
from ...components.page_frame import ProjectScope
from ...components.page_links import show_address
from ...operation_runner import Operation
from ...queries import targets as queries
from .clean_dialog import CleanDialog
from .target_card import CardView


class TargetsPage:
    """Targets page and the state that its cards share."""

    def __init__(self, backend: Backend, scope: ProjectScope) -> None:
        self.backend, self.scope = backend, scope
        self.gpu_poller = backend.gpus
        self._cards: dict[str, CardView] = {}

    async def show(self, operation_id: str) -> None:
        """Show the page. If the URL contains an ``operation_id``, show that operation again."""
        with ui.row().classes("mlw-targets-head"):
            with ui.element("h1"):
                ui.label("Compute targets")
            ui.space()
            ui.button("Refresh", icon="refresh", on_click=self.refresh).props("flat no-caps dense")
            ui.button("Clean this machine", icon="cleaning_services", on_click=self._clean).props("flat no-caps dense")
            ui.button("Attach a machine", icon="add_link", on_click=self.attach).props("unelevated no-caps")
        self._operations_box = ui.column().classes("mlw-going")
        self._cards_box = ui.element("div").classes("mlw-targets")
        await self.refresh()
        self._show_operations()
        ui.timer(2.0, self._show_operations)
        operation = self.backend.operations.find_for(self.scope.key, operation_id) if operation_id else None
        if operation is not None:
            self.show_operation(*operation)

    async def refresh(self) -> None:
        """Reload the configuration files and update the cards."""
        try:
            cards = await self.backend.call(queries.cards, self.scope.project)
        except MlwError as error:
            text, hint = describe_error(error)
            self._cards_box.clear()
            with self._cards_box:
                empty_state("error_outline", text, hint or "")
            return
        names = [card.name for card in cards]
        if names != list(self._cards) or not names:
            self._cards_box.clear()
            with self._cards_box:
                self._cards = {card.name: CardView(self, card) for card in cards}
                if not cards:
                    text = "Scripts run on compute targets: this machine, or a machine that you reach over SSH."
                    command = "mlw computetarget attach remotedocker --name my_dsvm --address 10.0.0.7"
                    empty_state("dns", "No compute targets", text, command)
        for card in cards:
            await self._cards[card.name].show(card)

    async def attach(self, card: queries.Card | None = None) -> None:
        AttachDialog(self.backend, self.scope, self.refresh, card if isinstance(card, queries.Card) else None).open()

    async def _clean(self) -> None:
        await CleanDialog(self.backend, self.scope, None).load()

    # -- operations -----------------------------------------------------------------------------------------

    def show_operation(self, title: str, operation: Operation) -> OperationDialog:
        """Show an operation. The URL contains its ID, so a reload shows it again."""
        address = f"{self.scope.address}/targets"
        dialog = OperationDialog(title, operation, keep_open=True, on_hidden=lambda: show_address(address))
        show_address(f"{address}?operation={operation.id}")
        dialog.open()
        return dialog

    def _show_operations(self) -> None:
        operations = self.backend.operations.running_for(self.scope.key)
        names = [operation.id for _, operation in operations]
        if names == getattr(self, "_shown", []):
            return
        self._shown = names
        self._operations_box.clear()
        with self._operations_box:
            for title, operation in operations:
                with ui.row().classes("mlw-going-row"):
                    ui.spinner(size="16px").props("aria-hidden=true")
                    ui.label(plain(title, 200))
                    ui.button("Show", on_click=lambda t=title, e=operation: self.show_operation(t, e)).props(
                        "flat dense no-caps"
                    )
