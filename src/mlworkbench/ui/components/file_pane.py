"""Pane that opens, edits, and saves a file. Edits are kept as a draft from the first keystroke."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlencode

from nicegui import background_tasks, ui

from ...errors import MlwError
from ...report import units
from ...sanitize import plain
from ..backend import Backend
from ..drafts import Draft
from ..file_saving import FileChanged, save
from ..queries import config_forms, files
from ..queries.editor_checks import problems_in
from .config_form import ConfigForm
from .diff_view import show_difference
from .editor import Editor
from .empty_state import empty_state
from .error_notice import notify_error, report_errors
from .file_banner import FileBanner, confirm_discard, missing_file_message
from .page_frame import ProjectScope
from .page_links import full_address
from .problem_list import problem_list
from .run_bar import run_bar
from .timestamp import Timestamp

_POLL_INTERVAL = 2.0  # seconds between checks of the file on disk
_FLUSH_INTERVAL = 0.5  # seconds between draft writes
_IDLE = 5.0  # seconds without typing before drafts from other pages are adopted
_CHECK_DELAY = 0.35  # seconds without typing before the text is checked


class FilePane:
    """Editor pane. Calls ``on_change`` when the set of unsaved files may have changed."""

    def __init__(self, backend: Backend, scope: ProjectScope, on_change: Callable[[], None]) -> None:
        self._backend = backend
        self._scope = scope
        self._on_change = on_change
        self._owner = ui.context.client.id
        self._content: files.Content | None = None
        self._editor: Editor | None = None
        self._form: ConfigForm | None = None
        self._base = ""  # digest of the file that the text is based on
        self._setting = False  # true while code, not the user, changes the text
        self._typed_at = 0.0
        self._check_number = 0  # number of the latest check
        self._open_number = 0  # incremented by each open() call, to detect another call during an await
        self._missing = False  # no text file on disk
        with ui.element("div").classes("mlw-pane") as self._box:
            empty_state("description", "No file open", "Select a file in the tree on the left.")
        ui.timer(_POLL_INTERVAL, self._poll)
        ui.timer(_FLUSH_INTERVAL, self._flush)

    @property
    def path(self) -> str:
        return self._content.path if self._content else ""

    # -- opening -----------------------------------------------------------------------------------

    async def open(self, path: str, line: int | None = None) -> None:
        root, key = self._scope.project.root, self._scope.key
        self._open_number += 1
        number = self._open_number
        try:
            content, failure = await self._backend.call(lambda _: files.read(root, path)), None
        except MlwError as error:
            content, failure = None, error
        draft = (await self._backend.call(lambda _: self._backend.drafts.for_project(key))).get(path)
        if number != self._open_number:
            return
        if draft is not None and (content is None or content.kind != "text"):
            stamp = await self._backend.call(lambda _: files.stamp(root, path))
            if number != self._open_number:
                return
            placeholder = files.Content(path, "text", 0, 0.0, stamp or "", windows=draft.windows, marked=draft.marked)
            self._content, self._base, self._missing = placeholder, draft.base, True
            self._show_editor(placeholder, draft)
            self._show_missing(content.reason or "it is now an image" if content else failure)
        elif content is not None:
            self._show(content, draft)
        elif failure is not None:
            self._show_empty("error_outline", plain(failure.message, 300), failure.hint or "Select another file.")
        await self._check()
        if line and self._editor and number == self._open_number:
            self._editor.reveal(line)

    def _show(self, content: files.Content, draft: Draft | None) -> None:
        if draft is not None and draft.text == content.text and content.kind == "text":
            self._backend.drafts.drop(self._scope.key, content.path)  # already saved
            draft = None
        self._content, self._missing = content, False
        self._base = draft.base if draft else content.digest
        if content.kind == "text":
            self._show_editor(content, draft)
        elif content.kind == "picture":
            self._show_picture(content)
        else:
            details = f"{plain(content.path, 200)}, {units.size(content.size)}"
            self._show_empty("block", f"Cannot open this file: {content.reason}", details)

    def close(self) -> None:
        self._open_number += 1
        self._show_empty("description", "No file open", "Select a file in the tree on the left.")

    def _show_empty(self, icon: str, title: str, text: str) -> None:
        self._content = self._editor = self._form = None
        self._box.clear()
        with self._box:
            empty_state(icon, title, text)

    def _show_picture(self, content: files.Content) -> None:
        self._editor = self._form = None
        self._box.clear()
        with self._box:
            self._head(content)
            image = ui.element("img").classes("mlw-picture")
            address = urlencode({"path": content.path, "v": content.stamp})
            image._props["src"] = full_address(f"/api/projects/{self._scope.key}/picture?{address}")
            image._props["alt"] = plain(content.path, 200)

    def _show_editor(self, content: files.Content, draft: Draft | None) -> None:
        self._box.clear()
        with self._box:
            self._head(content)
            self._banner = FileBanner()
            with ui.element("div").classes("mlw-pane-body"):
                with ui.element("div").classes("mlw-pane-text"):
                    text = draft.text if draft else content.text
                    self._editor = Editor(self._scope.key, content.path, text, self._on_typed, self.save)
                    self._problems = ui.element("div").classes("mlw-pane-problems").props("role=status")
                self._form = ConfigForm(self._set_field) if config_forms.has_form(content.path) else None
        if draft is not None and not self._missing and draft.base != content.digest:
            self._show_conflict(f"{plain(content.path, 200)} was changed on disk after you started editing.")
        self._refresh()

    def _head(self, content: files.Content) -> None:
        with ui.row().classes("mlw-pane-head"):
            ui.label(plain(content.path, 200)).classes("mlw-mono mlw-pane-path")
            self._state = ui.label("").classes("mlw-faint").props("role=status")
            ui.space()
            if not self._missing:
                with ui.row().classes("mlw-faint mlw-pane-facts"):
                    ui.label(f"{units.size(content.size)}, modified")
                    Timestamp(content.modified)
            if content.kind != "text":
                return
            if content.path.endswith((".py", ".sh")):
                ui.button("Run…", icon="play_arrow", on_click=self._run).props("flat dense no-caps")
            self._undo = ui.button("Discard", icon="undo", on_click=self._discard).props("flat dense no-caps")
            self._save = ui.button("Save", icon="save", on_click=self.save).props("unelevated dense no-caps")
            self._save.tooltip("Ctrl-S")

    # -- editing -----------------------------------------------------------------------------------

    @property
    def unsaved(self) -> bool:
        if self._editor is None or self._content is None:
            return False
        return self._missing or self._editor.value != self._content.text

    def _on_typed(self) -> None:
        if self._setting:
            return
        self._typed_at = time.monotonic()
        self._update_draft()
        background_tasks.create(self._check_soon())

    def _set_text(self, text: str) -> None:
        assert self._editor is not None
        self._setting = True
        self._editor.value = text
        self._setting = False

    def _update_draft(self) -> None:
        """Keep unsaved text as a draft; drop the draft if the text equals the file."""
        content, editor = self._content, self._editor
        if content is None or editor is None:
            return
        if self.unsaved:
            self._put_draft(content, editor.value, self._base)
        else:
            self._backend.drafts.drop(self._scope.key, content.path)
        self._refresh()

    def _put_draft(self, content: files.Content, text: str, base: str) -> None:
        draft = Draft(content.path, text, base, content.windows, content.marked, self._owner)
        self._backend.drafts.put(self._scope.key, draft)

    def _draft_of(self, path: str) -> Draft | None:
        return self._backend.drafts.for_project(self._scope.key).get(path)

    async def _flush(self) -> None:
        if self._backend.drafts.has_unwritten:
            await asyncio.to_thread(self._backend.drafts.flush)

    def _refresh(self) -> None:
        unsaved = self.unsaved
        self._state.text = "Unsaved changes" if unsaved else ""
        self._save.set_enabled(unsaved)
        self._undo.set_visibility(unsaved)
        self._on_change()

    async def _check_soon(self) -> None:
        self._check_number += 1
        number = self._check_number
        await asyncio.sleep(_CHECK_DELAY)
        if number == self._check_number:
            await self._check()

    async def _check(self) -> None:
        editor, form = self._editor, self._form
        if editor is None:
            return
        path, text = self.path, editor.value
        project = self._scope.project
        problems = await self._backend.call(lambda _: problems_in(project, path, text))
        form_data = await self._backend.call(lambda _: config_forms.build_form(path, text)) if form else None
        if editor is not self._editor or text != editor.value:
            return  # text has changed; another check follows
        editor.mark(problems)
        self._problems.clear()
        with self._problems:
            if problems:
                problem_list(problems, lambda problem: editor.reveal(problem.line or 1))
        if form and form_data:
            form.show(form_data)

    async def _set_field(self, name: str, value: str) -> None:
        """Apply a form field change to the text."""
        content, editor, base = self._content, self._editor, self._base
        if content is None or editor is None:
            return
        with report_errors():
            while True:
                text = editor.value
                new_text = await self._backend.call(
                    lambda _, path, now: config_forms.apply_field(path, now, name, value), content.path, text
                )
                if editor.value == text:
                    break  # otherwise, the text was edited in the meantime; try again
            if editor is not self._editor:  # another file is open; keep the change as a draft
                self._put_draft(content, new_text, base)
                self._on_change()
                return
            self._set_text(new_text)
            self._update_draft()
            await self._check()

    # -- saving ------------------------------------------------------------------------------------

    async def save(self) -> None:
        if self.unsaved and self._banner.message:
            ui.notify("resolve the conflict with the file on disk before you save", type="warning")
        elif self.unsaved:
            await self._write(self._base)

    async def _write(self, base: str | None) -> None:
        """Save the file. For ``base``, see ``file_saving.save``."""
        content, editor = self._content, self._editor
        if content is None or editor is None:
            return
        text, root = editor.value, self._scope.project.root
        data = files.encode_text(text, content.windows, content.marked)
        try:
            digest = await self._backend.call(lambda _: save(root, content.path, data, base))
            now = await self._backend.call(lambda _: files.read(root, content.path))
        except MlwError as error:
            with self._box:  # the clicked element may no longer exist
                if isinstance(error, FileChanged) and editor is self._editor:
                    self._show_conflict(f"{error.message}.")
                else:
                    notify_error(error)
            return
        if editor is self._editor:
            self._content = now
            self._rebase(digest)
            self._update_draft()
        else:
            self._saved_in_background(content, text, digest)
        with self._box:
            ui.notify(f"saved {plain(content.path, 100)}", type="positive")

    def _saved_in_background(self, content: files.Content, text: str, digest: str) -> None:
        """Update the draft of a file whose save finished after another file was opened."""
        draft = self._draft_of(content.path)
        if draft is not None and draft.text == text:
            self._backend.drafts.drop(self._scope.key, content.path)
        elif draft is not None:
            self._put_draft(content, draft.text, digest)
        if self.path == content.path:
            self._base = digest  # the file was reopened; its text is based on the saved content
        self._on_change()

    async def _discard(self) -> None:
        path = self.path
        if await confirm_discard(path):
            await self._reload(path)

    async def _reload(self, path: str) -> None:
        self._backend.drafts.drop(self._scope.key, path)
        if self.path == path:
            await self.open(path)
        self._on_change()

    async def _run(self) -> None:
        with ui.dialog() as dialog, ui.card().classes("mlw-card mlw-run-card"):
            dialog.props("aria-label=Run")
            ui.label("Run").classes("mlw-empty-title")
            await run_bar(self._backend, self._scope, self.path)
        dialog.on("hide", dialog.delete)
        dialog.open()

    # -- the file on disk --------------------------------------------------------------------------

    async def _poll(self) -> None:
        """Detect changes to the file on disk and edits from other pages."""
        content = self._content
        if content is None:
            return
        root = self._scope.project.root
        stamp = await self._backend.call(lambda _: files.stamp(root, content.path))
        if content is not self._content:
            return
        if (stamp or "") != content.stamp:
            await self._handle_change(content, stamp)
        if self.path != content.path:
            return  # another file has been opened
        draft = self._draft_of(content.path)
        is_mine = not draft or draft.owner == self._owner or time.monotonic() - self._typed_at < _IDLE
        if self._editor and draft and not is_mine and draft.text != self._editor.value:
            self._set_text(draft.text)
            self._refresh()

    async def _handle_change(self, content: files.Content, stamp: str | None) -> None:
        editor, root = self._editor, self._scope.project.root
        if stamp is None:
            self._mark_deleted(content)
            return
        try:
            now = await self._backend.call(lambda _: files.read(root, content.path))
        except MlwError:
            now = None
        if content is not self._content:
            return  # saved, or another file has been opened
        if editor is None or self._missing or now is None or now.kind != "text":
            await self.open(content.path)
        elif now.digest == self._base or now.text == editor.value:
            self._content = now
            self._rebase(now.digest)
            self._update_draft()
        elif now.digest == content.digest:
            self._content = now  # same content, new modification time
        elif not self.unsaved:
            self._content = now
            self._set_text(now.text)
            self._rebase(now.digest)
            self._refresh()
            ui.notify(f"{plain(content.path, 100)} was changed on disk and reloaded")
            await self._check()
        else:
            self._show_conflict(f"{plain(content.path, 200)} was changed on disk.")

    def _mark_deleted(self, content: files.Content) -> None:
        if not self.unsaved:
            self._show_empty("delete_outline", f"{plain(content.path, 200)} no longer exists", "Deleted or renamed.")
            return
        self._content, self._missing = replace(content, stamp="", digest="", text=""), True
        self._show_missing(None)
        self._update_draft()

    def _show_conflict(self, message: str) -> None:
        path = self.path
        reload = ("Reload from disk", lambda: self._reload(path))
        self._banner.show(message, (reload, ("Overwrite", self._overwrite), ("Show differences", self._show_diff)))

    def _show_missing(self, why: str | MlwError | None) -> None:
        choices = ("Save again", self._overwrite), ("Discard", self._discard)
        self._banner.show(missing_file_message(self.path, why), choices)

    async def _overwrite(self) -> None:
        await self._write(None if self._content and self._content.stamp else "")  # "": save only if there is no file

    def _rebase(self, base: str) -> None:
        """Record that the text is based on the current file on disk, and hide the banner."""
        self._base, self._missing = base, False
        self._banner.hide()

    async def _show_diff(self) -> None:
        path, root, editor = self.path, self._scope.project.root, self._editor
        with report_errors():
            now = await self._backend.call(lambda _: files.read(root, path))
            if editor is not None and editor is self._editor:
                await show_difference(self._backend, plain(path, 200), now.text, editor.value)
