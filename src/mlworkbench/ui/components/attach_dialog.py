"""The dialog that makes a machine a target. The machine's own key is shown, and somebody has to say yes to it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nicegui import ui

from ...errors import MlwError
from ...report.plain import plain
from ..answers.targets import Card, file_address
from ..answers.words import Attach
from ..desk import Desk
from ..errands import Errand
from .attachform import PASSWORD, AttachForm
from .errand import ErrandView
from .findings import findings_table
from .frame import Here
from .held import Held
from .trouble import tell

Done = Callable[[], Awaitable[None]]
_COMPARE = "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"


class AttachDialog(ui.dialog):
    """Form, lines of the command, its questions, what came of it. ``done`` is called after a success."""

    def __init__(self, desk: Desk, where: Here, done: Done, card: Card | None = None) -> None:
        super().__init__()
        self._desk, self._where, self._done = desk, where, done
        self._held = Held()
        self._errand: Errand | None = None
        self._props["aria-label"] = "Attach a machine"
        self.props("persistent")
        with self, ui.card().classes("mlw-card mlw-attach"):
            with ui.element("h2").classes("mlw-box-title"):
                ui.label("Attach a machine")
            self._trouble = ui.column().classes("mlw-attach-trouble").props("role=alert")
            with ui.column().classes("mlw-attach-part") as self._filling:
                self._form = AttachForm(card, self._attach)
                self._command = ui.label().classes("mlw-mono mlw-faint mlw-said")
                with ui.row().classes("mlw-errand-buttons"):
                    ui.button("Cancel", on_click=self._leave).props("flat no-caps")
                    ui.button("Attach", icon="link", on_click=self._attach).props("unelevated no-caps")
            self._rest = ui.column().classes("mlw-attach-part")
        self._form.changed(self._show_command)
        self._show_command()

    def _show_command(self) -> None:
        wish = self._form.wish()
        words = wish.words(self._form.way == PASSWORD and wish.address is not None)
        self._command.set_text(plain(shlex.join(["mlw", *(one for one in words if one not in ("-o", "json"))]), 1000))

    def _leave(self) -> None:
        self._held.drop()
        self._errand = None
        self._form.forget()
        self.close()

    # -- the attempts ---------------------------------------------------------------------------------------

    async def _attach(self) -> None:
        """With what was typed. The field is empty from now on; between two attempts the server has the password."""
        self._held.keep(await self._form.password())
        missing = self._form.missing(self._held.value is not None)
        if missing:
            self._held.drop()
            self._fill(MlwError(missing))
            return
        await self._attempt(None)

    async def _attempt(self, host_key: str | None) -> None:
        password, wish = self._held.value, self._form.wish(host_key)
        if password is None and self._form.way == PASSWORD and wish.address:
            self._fill(MlwError("The password expired after two minutes", "enter it again"))
            return
        title = f"Attach {wish.name}"
        words, root = wish.words(password is not None), self._where.project.root
        errand = self._errand = await self._desk.errands.start(*words, cwd=root, secret=password)
        self._desk.errands.remember(self._where.key, title, errand)
        self._show_lines(errand)
        await errand.done.wait()
        if self.client.is_deleted:
            self._held.drop()
        elif self._errand is errand:
            await self._ended(errand, wish)
        else:
            await self._ended_unseen(errand, wish)

    async def _ended_unseen(self, errand: Errand, wish: Attach) -> None:
        """The dialog was hidden meanwhile."""
        error = errand.error()
        if error is not None:
            tell(error)
            return
        ui.notify(f"{plain(wish.name, 200)} is attached", type="positive")
        await self._done()

    async def _ended(self, errand: Errand, wish: Attach) -> None:
        error = errand.error()
        answer: Mapping[str, Any] = errand.answer if isinstance(errand.answer, dict) else {}
        if error is None:
            self._held.drop()
            self._show_result(wish, answer)
            await self._done()
        elif answer.get("asks") == "host_key":
            self._ask_about_key(answer)
        elif answer.get("asks") == "public_key":
            self._ask_to_append(wish, answer)
        else:
            self._held.drop()
            self._fill(error)

    # -- what is shown --------------------------------------------------------------------------------------

    def _fill(self, error: MlwError | None) -> None:
        """Back to the form, with what went wrong."""
        self._rest.clear()
        self._filling.set_visibility(True)
        self._trouble.clear()
        if error is not None:
            with self._trouble:
                ui.label(plain(error.message, 2000)).classes("mlw-bad mlw-said")
                if error.hint:
                    ui.label(plain(error.hint, 2000)).classes("mlw-said")

    def _turn(self) -> ui.column:
        self._trouble.clear()
        self._filling.set_visibility(False)
        self._rest.clear()
        return self._rest

    def _show_lines(self, errand: Errand) -> None:
        with self._turn():
            with ui.row().classes("mlw-errand-head"):
                ui.spinner(size="18px").props("aria-hidden=true")
                ui.label("Connecting and checking the machine…")
            ErrandView(errand)
            with ui.row().classes("mlw-errand-buttons"):
                ui.button("Hide", on_click=self._leave).props("flat no-caps")

    def _ask_about_key(self, answer: Mapping[str, Any]) -> None:
        fingerprint, identity = str(answer.get("host_key")), str(answer.get("identity"))
        with self._turn():
            ui.label(f"First connection to {plain(identity, 300)}; its host key is:")
            ui.label(plain(fingerprint, 200)).classes("mlw-mono mlw-fingerprint")
            ui.label(f"({plain(str(answer.get('kind')), 60)})").classes("mlw-faint")
            ui.label("To verify it, run this command on the machine and compare the output:")
            ui.label(_COMPARE).classes("mlw-mono mlw-command")
            ui.label("No secrets have been sent yet. The password is kept in memory for two minutes.").classes(
                "mlw-faint"
            )
            with ui.row().classes("mlw-errand-buttons"):
                ui.button("Reject key", on_click=self._refuse_key).props("flat no-caps")
                ui.button("Trust key", icon="verified_user", on_click=lambda: self._attempt(fingerprint)).props(
                    "unelevated no-caps"
                )

    def _refuse_key(self) -> None:
        self._held.drop()
        words = "Not attached: host key rejected"
        self._fill(MlwError(words, f"to print the host key, run this on the machine: {_COMPARE}"))

    def _ask_to_append(self, wish: Attach, answer: Mapping[str, Any]) -> None:
        line = str(answer.get("line"))
        with self._turn():
            ui.label(f"Append this line to ~/.ssh/authorized_keys on {plain(str(answer.get('identity')), 300)}:")
            ui.label(plain(line, 4000)).classes("mlw-mono mlw-command mlw-said mlw-public-key")
            with ui.row().classes("mlw-errand-buttons"):
                ui.button("Cancel", on_click=self._leave).props("flat no-caps")
                ui.button("Copy", icon="content_copy", on_click=lambda: ui.clipboard.write(line)).props("flat no-caps")
                ui.button("Continue", icon="arrow_forward", on_click=lambda: self._attempt(wish.host_key)).props(
                    "unelevated no-caps"
                )

    def _show_result(self, wish: Attach, answer: Mapping[str, Any]) -> None:
        with self._turn():
            with ui.row().classes("mlw-status mlw-good").props("role=status"):
                ui.icon("check_circle").props("aria-hidden=true")
                ui.label(f"{plain(wish.name, 200)} is attached: {plain(str(answer.get('identity')), 300)}")
            if answer.get("key"):
                ui.label(f"Authentication: {plain(str(answer['key']), 300)}").classes("mlw-faint")
                ui.label(plain(str(answer.get("host_key")), 200)).classes("mlw-mono mlw-faint")
            if answer.get("findings"):
                findings_table(answer["findings"])
            written = [str(path) for path in answer.get("written") or ()]
            ui.label("Created files:" if written else "Files:")
            for path in written or [f"{self._where.project.folder}/{wish.name}{one}" for one in _SUFFIXES]:
                self._link(path)
            with ui.row().classes("mlw-errand-buttons"):
                ui.button("Done", on_click=self._leave).props("unelevated no-caps")

    def _link(self, path: str) -> None:
        name = os.path.relpath(path, self._where.project.root)
        ui.link(plain(name, 300), file_address(self._where.key, name)).classes("mlw-mono")


_SUFFIXES = (".compute", ".runconfig")
