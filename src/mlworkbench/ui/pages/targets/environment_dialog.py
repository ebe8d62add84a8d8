"""Dialog that lists the environments on a machine and their sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from nicegui import ui

from ....errors import MlwError
from ....report import units
from ....sanitize import plain
from ... import operation_arguments
from ...backend import Backend
from ...components.error_notice import describe_error
from ...components.operation_view import run_operation
from ...components.page_frame import ProjectScope
from ...components.timestamp import Timestamp
from .target_dialogs import TargetDialog

_DIGEST_LENGTH = 12
_COLUMNS = ("Environment", "Python", "Packages", "Size", "Unshared size", "Last used", "State", "")


class EnvironmentsDialog(TargetDialog):
    """Dialog for the environments on ``target``, or on this machine if ``target`` is None."""

    def __init__(self, backend: Backend, scope: ProjectScope, target: str | None) -> None:
        super().__init__(f"Environments on {target or 'this machine'}")
        self._backend, self._scope, self._target = backend, scope, target
        with self.buttons:
            ui.button("Remove unused", icon="delete_sweep", on_click=self._remove_unused).props("flat no-caps")

    async def load(self) -> None:
        self.open()
        await self._reload()

    async def _reload(self) -> None:
        arguments = operation_arguments.list_environments_arguments(self._target)
        self.body.clear()
        with self.body, ui.row().classes("mlw-errand-head") as waiting:
            ui.spinner(size="18px").props("aria-hidden=true")
            ui.label("Calculating sizes…").props("role=status")
        try:
            environments = await self._backend.operations.run(*arguments, cwd=self._scope.project.root)
        except MlwError as error:
            message, hint = describe_error(error)
            waiting.delete()
            with self.body:
                ui.label(message).classes("mlw-bad mlw-said")
                ui.label(hint or "").classes("mlw-said")
            return
        waiting.delete()
        with self.body:
            command = "mlw environment list" + (f" --target {plain(self._target, 100)}" if self._target else "")
            ui.label(command).classes("mlw-mono mlw-faint")
            if environments:
                self._table(environments)
            else:
                ui.label("No environments yet. The first run that needs one builds it, or click Prepare.").classes(
                    "mlw-faint"
                )

    def _table(self, environments: Sequence[Mapping[str, Any]]) -> None:
        with ui.element("table").classes("mlw-plain-table"):
            with ui.element("thead"), ui.element("tr"):
                for name in _COLUMNS:
                    with ui.element("th").props("scope=col"):
                        ui.label(name)
            with ui.element("tbody"):
                for environment in environments:
                    with ui.element("tr"):
                        self._row(environment)

    def _row(self, environment: Mapping[str, Any]) -> None:
        digest = str(environment.get("digest"))
        texts = [
            digest[:_DIGEST_LENGTH],
            str(environment.get("python") or ""),
            str(environment.get("packages") or ""),
            _size(environment.get("bytes")),
        ]
        for text in (*texts, _size(environment.get("own_bytes"))):
            with ui.element("td"):
                ui.label(plain(text, 60))
        with ui.element("td"):
            used = _parse_time(environment.get("last_used_utc"))
            if used is not None:
                Timestamp(used)
        with ui.element("td"):
            ui.label(plain(str(environment.get("state") or ""), 100))
        with ui.element("td"):
            button = ui.button(icon="delete", on_click=lambda: self._remove(digest)).props("flat dense round")
            button._props["aria-label"] = f"Remove environment {plain(digest[:_DIGEST_LENGTH], 20)}"

    async def _remove(self, digest: str) -> None:
        await self._run(
            f"Remove {digest[:_DIGEST_LENGTH]}",
            operation_arguments.remove_environments_arguments(self._target, [digest]),
        )

    async def _remove_unused(self) -> None:
        await self._run("Remove unused", operation_arguments.remove_environments_arguments(self._target, unused=True))

    async def _run(self, title: str, arguments: list[str]) -> None:
        await run_operation(self._backend, title, *arguments, cwd=self._scope.project.root)
        await self._reload()


def _size(count: object) -> str:
    return units.size(count) if isinstance(count, (int, float)) else ""


def _parse_time(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except ValueError:
        return None
