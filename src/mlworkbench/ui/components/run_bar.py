"""Run bar: run configuration, script, arguments, and the Run button, which first saves unsaved files."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from nicegui import ui

from ...errors import UsageError
from ...report.units import pluralize
from ...resubmit import submit_words, typed_command
from ...sanitize import plain
from ...submit_request import Request
from ..backend import Backend
from ..file_saving import save_drafts
from ..queries import dashboard, files
from .error_notice import report_errors
from .operation_view import run_operation
from .page_frame import ProjectScope
from .project_id_question import same_id_remedies

_DEFAULTS = ("local", "train.py")


def split_arguments(text: str) -> list[str]:
    """Split arguments as a shell does."""
    try:
        return shlex.split(text)
    except ValueError as error:
        hint = "quote values that contain spaces; put a backslash before a literal quote"
        raise UsageError(f"invalid arguments: {str(error).lower()}", hint) from None


def build_request(configuration: str, script: str, arguments: list[str], more: Mapping[str, str]) -> Request:
    """Build a request from the field values."""
    if arguments and not script:
        raise UsageError("arguments require a script", "select a script")
    return Request(
        configuration=configuration or None,
        script=(f"./{script}" if script.startswith("-") else script) or None,
        arguments=arguments,
        name=more.get("name") or None,
        tags=[tag.strip() for tag in more.get("tags", "").split(",") if tag.strip()],
        gpus=more.get("gpus") or None,
    )


class RunBar:
    """Run bar whose fields initially have the values of the project's last run."""

    def __init__(
        self, backend: Backend, scope: ProjectScope, configurations: dict[str, str], scripts: list[str]
    ) -> None:
        self._backend = backend
        self._scope = scope
        self._configurations = configurations
        with ui.element("section").classes("mlw-runbar").props('aria-label="Run"'):
            with ui.row().classes("mlw-runbar-row"):
                self.configuration = ui.select(configurations, label="Run configuration").classes("mlw-runbar-short")
                self.script = ui.select(scripts, label="Script", with_input=True, clearable=True)
                self.arguments = ui.input("Arguments").classes("mlw-runbar-long mlw-mono")
                self._button = ui.button("Run", icon="play_arrow", on_click=self.run).props("no-caps unelevated")
            more = ui.expansion("More").props("dense header-class=mlw-faint").classes("mlw-runbar-more")
            with more, ui.row().classes("mlw-runbar-row"):
                self.gpus = ui.input("GPUs").tooltip("Examples: 1; all; free; none; 0,2; h200")
                self.name = ui.input("Name")
                self.tags = ui.input("Tags").tooltip("Comma-separated list")
            self._command = ui.label("").classes("mlw-mono mlw-faint mlw-said")
        for field in (self.configuration, self.script, self.arguments, self.gpus, self.name, self.tags):
            field.props("outlined dense").on_value_change(self._show_command)
        self.script.classes("mlw-runbar-short")
        self.arguments.on("keydown.enter", self.run)

    def fill(self, configuration: str, script: str, arguments: str) -> None:
        self.configuration.value = configuration if configuration in self._configurations else None
        self.script.set_options(sorted({*self.script.options, script} - {""}), value=script or None)
        self.arguments.value = arguments
        self._show_command()

    def _request(self) -> Request:
        more = {"name": self.name.value or "", "tags": self.tags.value or "", "gpus": self.gpus.value or ""}
        script = self.script.value or ""
        return build_request(self.configuration.value or "", script, split_arguments(self.arguments.value or ""), more)

    def _show_command(self) -> None:
        """Show the equivalent command."""
        try:
            self._command.text = plain(typed_command(self._request()), 400)
        except UsageError as error:
            self._command.text = error.message

    async def run(self) -> None:
        scope = self._scope
        with report_errors():
            arguments = submit_words(self._request())
            saved = await self._backend.call(lambda _: save_drafts(scope.project.root, self._backend.drafts, scope.key))
            if saved:
                ui.notify(f"saved {pluralize(len(saved), 'file')}: {plain(', '.join(saved), 200)}")
            self._button.disable()
            try:
                root = scope.project.root
                remedies = same_id_remedies(self._backend, root, self.run)
                operation = await run_operation(self._backend, "Submit", *arguments, cwd=root, remedies=remedies)
            finally:
                self._button.enable()
            run_id = operation.result.get("run_id") if isinstance(operation.result, dict) else None
            if not operation.failed and run_id:
                self._backend.run_poller.heartbeat()
                ui.navigate.to(f"/runs/{run_id}")


async def run_bar(backend: Backend, scope: ProjectScope, script: str | None = None) -> None:
    """Draw the run bar. ``script`` is the open script and defaults to the script of the last run."""
    root = scope.project.root
    configurations, scripts, last = await backend.call(
        lambda history: (
            dashboard.runconfigs(scope.project),
            files.scripts(root),
            dashboard.recent(history, scope.project.id, 1),
        )
    )
    names = {
        configuration.name: plain(
            f"{configuration.name} → {configuration.target}" if configuration.target else configuration.name, 80
        )
        for configuration in configurations
    }
    bar = RunBar(backend, scope, names, scripts)
    spec = last[0].spec if last and last[0].spec.entry.kind == "script" else None
    default_configuration = next((name for name in (_DEFAULTS[0], *names) if name in names), "")
    default_script = next((name for name in (_DEFAULTS[1], *scripts) if name in scripts), "")
    if spec is None or (script is not None and spec.entry.name != script):
        bar.fill(spec.runconfig if spec else default_configuration, script or default_script, "")
    else:
        bar.fill(spec.runconfig, spec.entry.name, shlex.join(spec.entry.arguments))
