"""The file that is looked at: opened, edited, saved. What is typed is kept as a draft from the first letter on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlencode

from nicegui import background_tasks, ui

from ...errors import MlwError
from ...report import units
from ...report.plain import plain
from ..answers import files, forms
from ..answers.checks import problems_in
from ..desk import Desk
from ..drafts import Draft
from ..saving import Changed, save
from .addresses import full_address
from .banner import Banner, ask_discard, lost_words
from .difference import show_difference
from .editor import Editor
from .empty import empty
from .forms import FormView
from .frame import Here
from .problems import problem_list
from .runbar import runbar
from .trouble import tell, telling
from .when import When

_PAUSE = 2.0  # seconds between two looks at the file on disk
_KEEP = 0.5  # seconds between two times that what is typed is written down
_AWAY = 5.0  # seconds after which nobody types here any more
_QUIET = 0.35  # seconds without a keystroke before the text is checked


class FilePane:
    """One of them on a page. ``told`` hears when what is unsaved has changed."""

    def __init__(self, desk: Desk, where: Here, told: Callable[[], None]) -> None:
        self._desk = desk
        self._where = where
        self._told = told
        self._owner = ui.context.client.id
        self._content: files.Content | None = None
        self._editor: Editor | None = None
        self._form: FormView | None = None
        self._base = ""  # digest of the file that the text was made from
        self._setting = False  # the text is being changed, and not by the user
        self._typed_at = 0.0
        self._turn = 0  # of the checks
        self._opening = 0  # counts what is opened: whoever waited for the disk sees that another one is in sight
        self._lost = False  # there is no text on disk to go back to
        with ui.element("div").classes("mlw-pane") as self._box:
            empty("description", "No file open", "Select a file in the tree on the left.")
        ui.timer(_PAUSE, self._look)
        ui.timer(_KEEP, self._store)

    @property
    def path(self) -> str:
        return self._content.path if self._content else ""

    # -- opening -----------------------------------------------------------------------------------

    async def open(self, path: str, line: int | None = None) -> None:
        root, key = self._where.project.root, self._where.key
        self._opening += 1
        turn = self._opening
        try:
            content, trouble = await self._desk.ask(lambda _: files.read(root, path)), None
        except MlwError as error:
            content, trouble = None, error
        draft = (await self._desk.ask(lambda _: self._desk.drafts.of(key))).get(path)
        if turn != self._opening:
            return
        if draft is not None and (content is None or content.kind != "text"):
            stamp = await self._desk.ask(lambda _: files.stamp(root, path))
            if turn != self._opening:
                return
            known = files.Content(path, "text", 0, 0.0, stamp or "", windows=draft.windows, marked=draft.marked)
            self._content, self._base, self._lost = known, draft.base, True
            self._show_editor(known, draft)
            self._ask_lost(content.reason or "it is now an image" if content else trouble)
        elif content is not None:
            self._show(content, draft)
        elif trouble is not None:
            self._show_nothing("error_outline", plain(trouble.message, 300), trouble.hint or "Select another file.")
        await self._check()
        if line and self._editor and turn == self._opening:
            self._editor.reveal(line)

    def _show(self, content: files.Content, draft: Draft | None) -> None:
        if draft is not None and draft.text == content.text and content.kind == "text":
            self._desk.drafts.drop(self._where.key, content.path)  # it stands on disk already
            draft = None
        self._content, self._lost = content, False
        self._base = draft.base if draft else content.digest
        if content.kind == "text":
            self._show_editor(content, draft)
        elif content.kind == "picture":
            self._show_picture(content)
        else:
            words = f"{plain(content.path, 200)}, {units.size(content.size)}"
            self._show_nothing("block", f"Cannot open this file: {content.reason}", words)

    def close(self) -> None:
        self._opening += 1
        self._show_nothing("description", "No file open", "Select a file in the tree on the left.")

    def _show_nothing(self, icon: str, title: str, words: str) -> None:
        self._content = self._editor = self._form = None
        self._box.clear()
        with self._box:
            empty(icon, title, words)

    def _show_picture(self, content: files.Content) -> None:
        self._editor = self._form = None
        self._box.clear()
        with self._box:
            self._head(content)
            image = ui.element("img").classes("mlw-picture")
            address = urlencode({"path": content.path, "v": content.stamp})
            image._props["src"] = full_address(f"/api/projects/{self._where.key}/picture?{address}")
            image._props["alt"] = plain(content.path, 200)

    def _show_editor(self, content: files.Content, draft: Draft | None) -> None:
        self._box.clear()
        with self._box:
            self._head(content)
            self._banner = Banner()
            with ui.element("div").classes("mlw-pane-body"):
                with ui.element("div").classes("mlw-pane-text"):
                    text = draft.text if draft else content.text
                    self._editor = Editor(self._where.key, content.path, text, self._typed, self.save)
                    self._problems = ui.element("div").classes("mlw-pane-problems").props("role=status")
                self._form = FormView(self._fill) if forms.has_form(content.path) else None
        if draft is not None and not self._lost and draft.base != content.digest:
            self._ask(f"{plain(content.path, 200)} was changed on disk after you started editing.")
        self._refresh()

    def _head(self, content: files.Content) -> None:
        with ui.row().classes("mlw-pane-head"):
            ui.label(plain(content.path, 200)).classes("mlw-mono mlw-pane-path")
            self._state = ui.label("").classes("mlw-faint").props("role=status")
            ui.space()
            if not self._lost:
                with ui.row().classes("mlw-faint mlw-pane-facts"):
                    ui.label(f"{units.size(content.size)}, modified")
                    When(content.modified)
            if content.kind != "text":
                return
            if content.path.endswith((".py", ".sh")):
                ui.button("Run…", icon="play_arrow", on_click=self._run).props("flat dense no-caps")
            self._undo = ui.button("Discard", icon="undo", on_click=self._discard).props("flat dense no-caps")
            self._save = ui.button("Save", icon="save", on_click=self.save).props("unelevated dense no-caps")
            self._save.tooltip("Ctrl-S")

    # -- typing ------------------------------------------------------------------------------------

    @property
    def unsaved(self) -> bool:
        if self._editor is None or self._content is None:
            return False
        return self._lost or self._editor.value != self._content.text

    def _typed(self) -> None:
        if self._setting:
            return
        self._typed_at = time.monotonic()
        self._keep()
        background_tasks.create(self._check_soon())

    def _set(self, text: str) -> None:
        assert self._editor is not None
        self._setting = True
        self._editor.value = text
        self._setting = False

    def _keep(self) -> None:
        """As a draft, or no draft any more if the text is again that of the file."""
        content, editor = self._content, self._editor
        if content is None or editor is None:
            return
        if self.unsaved:
            self._put(content, editor.value, self._base)
        else:
            self._desk.drafts.drop(self._where.key, content.path)
        self._refresh()

    def _put(self, content: files.Content, text: str, base: str) -> None:
        draft = Draft(content.path, text, base, content.windows, content.marked, self._owner)
        self._desk.drafts.put(self._where.key, draft)

    def _draft_of(self, path: str) -> Draft | None:
        return self._desk.drafts.of(self._where.key).get(path)

    async def _store(self) -> None:
        if self._desk.drafts.waiting:
            await asyncio.to_thread(self._desk.drafts.flush)

    def _refresh(self) -> None:
        unsaved = self.unsaved
        self._state.text = "Unsaved changes" if unsaved else ""
        self._save.set_enabled(unsaved)
        self._undo.set_visibility(unsaved)
        self._told()

    async def _check_soon(self) -> None:
        self._turn += 1
        turn = self._turn
        await asyncio.sleep(_QUIET)
        if turn == self._turn:
            await self._check()

    async def _check(self) -> None:
        editor, form = self._editor, self._form
        if editor is None:
            return
        path, text = self.path, editor.value
        project = self._where.project
        found = await self._desk.ask(lambda _: problems_in(project, path, text))
        told = await self._desk.ask(lambda _: forms.form(path, text)) if form else None
        if editor is not self._editor or text != editor.value:
            return  # typed on meanwhile; the next check is on its way
        editor.mark(found)
        self._problems.clear()
        with self._problems:
            if found:
                problem_list(found, lambda one: editor.reveal(one.line or 1))
        if form and told:
            form.show(told)

    async def _fill(self, name: str, value: str) -> None:
        """A field of the form was changed: so is the text."""
        content, editor, base = self._content, self._editor, self._base
        if content is None or editor is None:
            return
        with telling():
            while True:
                text = editor.value
                made = await self._desk.ask(
                    lambda _, path, now: forms.filled(path, now, name, value), content.path, text
                )
                if editor.value == text:
                    break  # else it was typed on meanwhile
            if editor is not self._editor:  # another file is in sight; what was filled in is not lost
                self._put(content, made, base)
                self._told()
                return
            self._set(made)
            self._keep()
            await self._check()

    # -- saving ------------------------------------------------------------------------------------

    async def save(self) -> None:
        if self.unsaved and self._banner.words:
            ui.notify("resolve the conflict with the file on disk before you save", type="warning")
        elif self.unsaved:
            await self._write(self._base)

    async def _write(self, base: str | None) -> None:
        """``base``: see ``saving.save``."""
        content, editor = self._content, self._editor
        if content is None or editor is None:
            return
        text, root = editor.value, self._where.project.root
        data = files.encoded(text, content.windows, content.marked)
        try:
            digest = await self._desk.ask(lambda _: save(root, content.path, data, base))
            now = await self._desk.ask(lambda _: files.read(root, content.path))
        except MlwError as error:
            with self._box:  # what was clicked may be gone by now
                if isinstance(error, Changed) and editor is self._editor:
                    self._ask(f"{error.message}.")
                else:
                    tell(error)
            return
        if editor is self._editor:
            self._content = now
            self._settle(digest)
            self._keep()
        else:
            self._saved_behind(content, text, digest)
        with self._box:
            ui.notify(f"saved {plain(content.path, 100)}", type="positive")

    def _saved_behind(self, content: files.Content, text: str, digest: str) -> None:
        """Another file came into sight while this one was written: only its draft is ours to change."""
        draft = self._draft_of(content.path)
        if draft is not None and draft.text == text:
            self._desk.drafts.drop(self._where.key, content.path)
        elif draft is not None:
            self._put(content, draft.text, digest)
        if self.path == content.path:
            self._base = digest  # it was opened once more, with the text that is saved now
        self._told()

    async def _discard(self) -> None:
        path = self.path
        if await ask_discard(path):
            await self._reload(path)

    async def _reload(self, path: str) -> None:
        self._desk.drafts.drop(self._where.key, path)
        if self.path == path:
            await self.open(path)
        self._told()

    async def _run(self) -> None:
        with ui.dialog() as dialog, ui.card().classes("mlw-card mlw-run-card"):
            dialog.props("aria-label=Run")
            ui.label("Run").classes("mlw-empty-title")
            await runbar(self._desk, self._where, self.path)
        dialog.on("hide", dialog.delete)
        dialog.open()

    # -- the file on disk --------------------------------------------------------------------------

    async def _look(self) -> None:
        """Somebody else may have changed the file, or another page what is typed in it."""
        content = self._content
        if content is None:
            return
        root = self._where.project.root
        stamp = await self._desk.ask(lambda _: files.stamp(root, content.path))
        if content is not self._content:
            return
        if (stamp or "") != content.stamp:
            await self._changed(content, stamp)
        if self.path != content.path:
            return  # another one was opened meanwhile
        draft = self._draft_of(content.path)
        is_mine = not draft or draft.owner == self._owner or time.monotonic() - self._typed_at < _AWAY
        if self._editor and draft and not is_mine and draft.text != self._editor.value:
            self._set(draft.text)
            self._refresh()

    async def _changed(self, content: files.Content, stamp: str | None) -> None:
        editor, root = self._editor, self._where.project.root
        if stamp is None:
            self._vanished(content)
            return
        try:
            now = await self._desk.ask(lambda _: files.read(root, content.path))
        except MlwError:
            now = None
        if content is not self._content:
            return  # saved, or another one is in sight
        if editor is None or self._lost or now is None or now.kind != "text":
            await self.open(content.path)
        elif now.digest == self._base or now.text == editor.value:
            self._content = now
            self._settle(now.digest)
            self._keep()
        elif now.digest == content.digest:
            self._content = now  # only touched
        elif not self.unsaved:
            self._content = now
            self._set(now.text)
            self._settle(now.digest)
            self._refresh()
            ui.notify(f"{plain(content.path, 100)} was changed on disk and reloaded")
            await self._check()
        else:
            self._ask(f"{plain(content.path, 200)} was changed on disk.")

    def _vanished(self, content: files.Content) -> None:
        if not self.unsaved:
            self._show_nothing("delete_outline", f"{plain(content.path, 200)} no longer exists", "Deleted or renamed.")
            return
        self._content, self._lost = replace(content, stamp="", digest="", text=""), True
        self._ask_lost(None)
        self._keep()

    def _ask(self, words: str) -> None:
        path = self.path
        reload = ("Reload from disk", lambda: self._reload(path))
        self._banner.ask(words, (reload, ("Overwrite", self._overwrite), ("Show differences", self._differ)))

    def _ask_lost(self, why: str | MlwError | None) -> None:
        choices = ("Save again", self._overwrite), ("Discard", self._discard)
        self._banner.ask(lost_words(self.path, why), choices)

    async def _overwrite(self) -> None:
        await self._write(None if self._content and self._content.stamp else "")  # not over one that comes meanwhile

    def _settle(self, base: str) -> None:
        """The text is made from what is on disk now."""
        self._base, self._lost = base, False
        self._banner.hide()

    async def _differ(self) -> None:
        path, root, editor = self.path, self._where.project.root, self._editor
        with telling():
            now = await self._desk.ask(lambda _: files.read(root, path))
            if editor is not None and editor is self._editor:
                await show_difference(self._desk, plain(path, 200), now.text, editor.value)
