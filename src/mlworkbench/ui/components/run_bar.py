"""The run bar: run configuration, script, arguments, Run. What is typed and not saved is saved first."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from nicegui import ui

from ...errors import UsageError
from ...report.plain import plain
from ...report.units import counted
from ...request import Request
from ...resubmit import submit_words, typed_command
from ..answers import dashboard, files
from ..desk import Desk
from ..saving import save_drafts
from .errand import carried_out
from .frame import Here
from .sameid import same_id_remedies
from .trouble import telling

_PREFERRED = ("local", "train.py")


def split(text: str) -> list[str]:
    """Arguments as a shell would take them apart."""
    try:
        return shlex.split(text)
    except ValueError as error:
        hint = "quote values that contain spaces; put a backslash before a literal quote"
        raise UsageError(f"invalid arguments: {str(error).lower()}", hint) from None


def submission(configuration: str, script: str, arguments: list[str], more: Mapping[str, str]) -> Request:
    """Of what stands in the fields."""
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
    """Its fields, filled as the last run of the project was."""

    def __init__(self, desk: Desk, where: Here, configurations: dict[str, str], scripts: list[str]) -> None:
        self._desk = desk
        self._where = where
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
            field.props("outlined dense").on_value_change(self._show)
        self.script.classes("mlw-runbar-short")
        self.arguments.on("keydown.enter", self.run)

    def fill(self, configuration: str, script: str, arguments: str) -> None:
        self.configuration.value = configuration if configuration in self._configurations else None
        self.script.set_options(sorted({*self.script.options, script} - {""}), value=script or None)
        self.arguments.value = arguments
        self._show()

    def _submission(self) -> Request:
        more = {"name": self.name.value or "", "tags": self.tags.value or "", "gpus": self.gpus.value or ""}
        script = self.script.value or ""
        return submission(self.configuration.value or "", script, split(self.arguments.value or ""), more)

    def _show(self) -> None:
        """What would be typed, so that people learn it."""
        try:
            self._command.text = plain(typed_command(self._submission()), 400)
        except UsageError as error:
            self._command.text = error.message

    async def run(self) -> None:
        where = self._where
        with telling():
            words = submit_words(self._submission())
            saved = await self._desk.ask(lambda _: save_drafts(where.project.root, self._desk.drafts, where.key))
            if saved:
                ui.notify(f"saved {counted(len(saved), 'file')}: {plain(', '.join(saved), 200)}")
            self._button.disable()
            try:
                root = where.project.root
                remedies = same_id_remedies(self._desk, root, self.run)
                errand = await carried_out(self._desk, "Submit", *words, cwd=root, remedies=remedies)
            finally:
                self._button.enable()
            run_id = errand.answer.get("run_id") if isinstance(errand.answer, dict) else None
            if not errand.failed and run_id:
                self._desk.live.attend()
                ui.navigate.to(f"/runs/{run_id}")


async def runbar(desk: Desk, where: Here, script: str | None = None) -> None:
    """``script``: the one that is looked at; else that of the last run."""
    root = where.project.root
    configurations, scripts, last = await desk.ask(
        lambda history: (
            dashboard.runconfigs(where.project),
            files.scripts(root),
            dashboard.recent(history, where.project.id, 1),
        )
    )
    names = {one.name: plain(f"{one.name} → {one.target}" if one.target else one.name, 80) for one in configurations}
    bar = RunBar(desk, where, names, scripts)
    spec = last[0].spec if last and last[0].spec.entry.kind == "script" else None
    known = next((name for name in (_PREFERRED[0], *names) if name in names), "")
    first = next((name for name in (_PREFERRED[1], *scripts) if name in scripts), "")
    if spec is None or (script is not None and spec.entry.name != script):
        bar.fill(spec.runconfig if spec else known, script or first, "")
    else:
        bar.fill(spec.runconfig, spec.entry.name, shlex.join(spec.entry.arguments))
