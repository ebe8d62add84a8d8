"""A command that the browser has set off: its lines as they come, and how it ended."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from nicegui import ui
from nicegui.element import Element

from ...errors import MlwError
from ...report.plain import plain
from ..desk import Desk
from ..errands import Errand

_QUICK = 0.4  # seconds within which a command is over before anybody could have read of it
_SEEN = 1.0  # seconds that a success stays in sight

# Called with the error and the box of a failed command, inside the box: adds buttons for what to do about it.
Remedies = Callable[[MlwError, "ErrandDialog"], None]


def no_remedies(error: MlwError, dialog: ErrandDialog) -> None:
    """Show only the hint."""


class ErrandView(Element, component="errand.js"):
    """A live box of its lines. The page asks for them, so they are all there after a reload too."""

    def __init__(self, errand: Errand) -> None:
        super().__init__()
        self._props["name"] = errand.id
        self._props["label"] = f"Output of {command_of(errand)}"

    def said_below(self) -> None:
        """The error and the hint stand elsewhere too: they are not said twice."""
        self._props["below"] = True
        self.update()


def command_of(errand: Errand) -> str:
    """As one would type it."""
    words = list(errand.words)
    if "-o" in words:
        del words[words.index("-o") : words.index("-o") + 2]  # the answer is for us
    return plain(shlex.join(("mlw", *words)), 400)


async def carried_out(
    desk: Desk,
    title: str,
    *words: str,
    cwd: Path | None = None,
    secret: str | None = None,
    environment: Mapping[str, str] | None = None,
    telling: bool = True,
    remedies: Remedies = no_remedies,
) -> Errand:
    """Carry a command out before the user's eyes; returns it when it is over, be it well or not (``errand.failed``).

    Nothing but a notification shows if it is over at once. A failure stays in sight until it is closed. To leave the
    page, or to hide the box, stops nothing. ``telling``: say that it is done; else the caller says more than that.
    """
    errand = await desk.errands.start(*words, cwd=cwd, secret=secret, environment=environment)
    await watched(title, errand, telling, remedies)
    return errand


async def watched(title: str, errand: Errand, telling: bool = True, remedies: Remedies = no_remedies) -> None:
    """The same for a command that was set off already."""
    client = ui.context.client
    if not await _over(errand, _QUICK) or errand.failed:
        with client:  # what was clicked may be gone before the end
            dialog = ErrandDialog(title, errand, remedies=remedies)
        dialog.open()
        await errand.done.wait()
        if not client.is_deleted and not dialog.is_deleted:
            await dialog.ended()
    if telling and not errand.failed and not client.is_deleted:
        with client:
            ui.notify(f"{plain(title, 200)}: done", type="positive", position="bottom")


async def _over(errand: Errand, patience: float) -> bool:
    try:
        await asyncio.wait_for(asyncio.shield(errand.done.wait()), patience)
    except asyncio.TimeoutError:
        return False
    return True


class ErrandDialog(ui.dialog):
    """The box in the middle of the page: what is done, the lines, the error and what to do about it."""

    def __init__(
        self,
        title: str,
        errand: Errand,
        *,
        stays: bool = False,
        hidden: Callable[[], None] = lambda: None,
        remedies: Remedies = no_remedies,
    ) -> None:
        """``stays``: a success does not close it; it notices the end by itself. ``hidden`` is called at last."""
        super().__init__()
        self._errand, self._stays, self._hidden, self._remedies = errand, stays, hidden, remedies
        self._props["aria-label"] = plain(title, 200)
        with self, ui.card().classes("mlw-card mlw-errand-card"):
            with ui.row().classes("mlw-errand-head"):
                self._busy = ui.spinner(size="18px").props("aria-hidden=true")
                ui.label(plain(title, 200)).classes("mlw-errand-title")
            ui.label(command_of(errand)).classes("mlw-mono mlw-faint mlw-said")
            self._view = ErrandView(errand)
            self._end = ui.column().classes("mlw-errand-end").props("role=status")
            with ui.row().classes("mlw-errand-buttons"):
                self._button = ui.button("Hide", on_click=self.close).props("flat no-caps")
                with self._button:
                    ui.tooltip("Continues in the background")
        if stays:
            self._view.on("ended", self.ended)
        self.on("hide", self._gone)

    def _gone(self) -> None:
        self._hidden()
        self.delete()

    async def ended(self) -> None:
        """Show how; a success closes the box by itself."""
        self._busy.set_visibility(False)
        self._button.clear()
        self._button.set_text("Close")
        error = self._errand.error()
        with self._end:
            if error is None:
                ui.label("Done").classes("mlw-good")
            else:
                self._view.said_below()
                ui.label(plain(error.message, 2000)).classes("mlw-bad mlw-said")
                if error.hint:
                    ui.label(f"Hint: {plain(error.hint, 2000)}").classes("mlw-said")
                self._remedies(error, self)
        if error is None and not self._stays:
            await asyncio.sleep(_SEEN)
            self.close()
