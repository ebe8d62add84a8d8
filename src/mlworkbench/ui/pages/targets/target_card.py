"""Compute target card: status, machine, GPUs, run configurations, and actions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from nicegui import ui

from ....errors import MlwError
from ....sanitize import plain
from ....targets.machine_check import ERROR, OK, WARNING, Finding
from ...components.finding_list import findings_summary
from ...components.gpu_gauges import GpuGauges
from ...components.timestamp import Timestamp
from ...queries import targets as queries
from . import target_dialogs
from .clean_dialog import CleanDialog
from .environment_dialog import EnvironmentsDialog

if TYPE_CHECKING:
    from .page import TargetsPage

Action = Callable[[], Awaitable[object]]


class CardView:
    """Target card. Data from local files is shown immediately.

    ``show`` adds findings, which may take longer, and redraws the card only if its data has changed.
    """

    def __init__(self, page: TargetsPage, card: queries.Card) -> None:
        self.page, self.card = page, card
        self._stale = False
        self._section = ui.element("section").classes("mlw-card mlw-target")
        self._section._props["aria-label"] = plain(card.name, 200)
        self._draw()

    def _draw(self) -> None:
        page, card = self.page, self.card
        self._section.clear()
        self._gauges: GpuGauges | None = None
        with self._section:
            self._head()
            if card.trouble:
                self._show_problem()
            if card.compute is not None and (card.attached or not card.elsewhere):
                self._gauges = GpuGauges(page.scope.key, card.name, card.elsewhere).classes("mlw-full")
            self._facts = ui.column().classes("mlw-full")
            self._uses()

    async def show(self, card: queries.Card) -> None:
        """Show the card with its findings. If the target is this machine, check it now."""
        if card != self.card or self._stale:
            self.card, self._stale = card, False
            self._draw()
        findings = list(self.card.findings)
        if self.card.compute is not None and not self.card.elsewhere:
            backend, read_facts = self.page.backend, self.page.gpu_poller.local_facts
            try:
                findings = await backend.call(
                    queries.local_findings, self.page.scope.project, self.card.name, read_facts
                )
            except MlwError:
                return  # the gauges show the error
        findings = [finding for finding in findings if self._is_relevant(finding)]
        self._show_worst(findings)
        self._facts.clear()
        with self._facts:
            findings_summary([asdict(finding) for finding in findings])

    def _show_worst(self, findings: list[Finding]) -> None:
        """Show the worst finding in the headline."""
        worst = next((finding for state in (ERROR, WARNING) for finding in findings if finding.state == state), None)
        if self._gauges is not None and not self._gauges.is_deleted:
            message = f"problem with {plain(worst.what, 60)}, see below" if worst else ""
            self._gauges.show_problem(worst.state if worst else "", message)

    def _is_relevant(self, finding: Finding) -> bool:
        """Return whether to show a finding.

        Problems with container engines that the target does not need are shown only by Check.
        """
        return self.card.contained or finding.state == OK or finding.what not in ("docker", "podman")

    # -- components -----------------------------------------------------------------------------------------

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
                has_error = any(finding.state == ERROR and self._is_relevant(finding) for finding in card.findings)
                with ui.row().classes("mlw-status mlw-idle" if has_error else "mlw-status mlw-good"):
                    ui.icon("link").props("aria-hidden=true")
                    ui.label("attached")
                if card.attached.checked:
                    ui.label("last checked").classes("mlw-faint")
                    Timestamp(card.attached.checked).classes("mlw-faint")
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
        self._button("Check", "fact_check", lambda: target_dialogs.check(self))
        self._prepare()
        more: list[tuple[str, str, Action]] = [
            ("Clean", "cleaning_services", self._clean),
            ("Environments", "inventory_2", self._environments),
        ]
        if card.elsewhere:
            more += [
                ("Allowed mounts", "folder_shared", lambda: target_dialogs.consents(self, target_dialogs.MOUNTS)),
                ("Allowed networks", "lan", lambda: target_dialogs.consents(self, target_dialogs.NETWORKS)),
                ("Reset key", "key", lambda: target_dialogs.reset_key(self)),
                ("Detach", "link_off", self._detach),
            ]
        self._menu(more)

    def _button(self, label: str, icon: str, action: Action) -> None:
        button = ui.button(label, icon=icon, on_click=self._in_page(action)).props("flat dense no-caps")
        button._props["aria-label"] = f"{label} {plain(self.card.name, 200)}"

    def _in_page(self, action: Action) -> Action:
        """Run an action in the page context: the card may be redrawn while its dialog is open."""

        async def run_action() -> None:
            with self._section.client:
                await action()

        return run_action

    def _prepare(self) -> None:
        names = [use.name for use in self.card.uses]
        if len(names) == 1:
            self._button("Prepare", "build", lambda: target_dialogs.prepare(self, names[0]))
            return
        if not names:
            return
        with ui.button("Prepare", icon="build").props("flat dense no-caps") as button, ui.menu():
            button._props["aria-label"] = f"Prepare {plain(self.card.name, 200)}"
            for name in names:
                action = self._in_page(partial(target_dialogs.prepare, self, name))
                ui.menu_item(plain(name, 100), on_click=action).props("role=menuitem")

    def _menu(self, actions: list[tuple[str, str, Action]]) -> None:
        with ui.button(icon="more_vert").props("flat dense round") as button, ui.menu():
            button._props["aria-label"] = f"More for {plain(self.card.name, 200)}"
            for label, icon, action in actions:
                with ui.menu_item(on_click=self._in_page(action)).props("role=menuitem"):
                    with ui.item_section().props("avatar"):
                        ui.icon(icon).props("aria-hidden=true")
                    with ui.item_section():
                        ui.label(label)

    def _show_problem(self) -> None:
        with ui.column().classes("mlw-target-trouble"):
            ui.label(plain(self.card.trouble or "", 1000)).classes("mlw-said mlw-warn")
            if self.card.hint:
                ui.label(plain(self.card.hint, 1000)).classes("mlw-said mlw-faint")

    def _uses(self) -> None:
        key = self.page.scope.key
        attachment = self.card.attached
        for title, allowed in (("Mounts", attachment.mounts), ("Networks", attachment.networks)) if attachment else ():
            if allowed:
                with ui.row().classes("mlw-uses"):
                    ui.label(title).classes("mlw-faint")
                    for text in allowed:
                        ui.label(plain(text, 200)).classes("mlw-mono")
        with ui.row().classes("mlw-uses"):
            ui.label("File").classes("mlw-faint")
            ui.link(plain(self.card.file, 300), queries.file_url(key, self.card.file)).classes("mlw-mono")
        with ui.row().classes("mlw-uses"):
            ui.label("Used by").classes("mlw-faint")
            for use in self.card.uses:
                ui.link(plain(use.name, 200), queries.file_url(key, use.file)).classes("mlw-mono")
            if not self.card.uses:
                ui.label("no run configurations").classes("mlw-faint")

    # -- actions --------------------------------------------------------------------------------------------

    async def release_gpus(self) -> None:
        """Close the connection that polls the GPUs. Polling resumes when the card is redrawn."""
        if self._gauges is not None and not self._gauges.is_deleted:
            self._gauges.delete()
            self._stale = True
        if self.card.compute is not None:
            await self.page.gpu_poller.disconnect(self.card.compute)

    async def _clean(self) -> None:
        target = self.card.name if self.card.elsewhere else None
        await CleanDialog(self.page.backend, self.page.scope, target).load()

    async def _environments(self) -> None:
        target = self.card.name if self.card.elsewhere else None
        await EnvironmentsDialog(self.page.backend, self.page.scope, target).load()

    async def _detach(self) -> None:
        await target_dialogs.detach(self)
