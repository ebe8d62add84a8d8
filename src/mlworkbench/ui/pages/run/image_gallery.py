"""All images among the outputs, under their paths; the figures that the script logged under their names."""

from __future__ import annotations

from urllib.parse import quote

from nicegui import ui

from ....report.plain import plain
from ...answers import outputs as answers
from ...parts.addresses import full_address
from ...parts.empty import empty
from . import deeds
from .context import Context

_SHOWN = 60


async def show(context: Context) -> None:
    found = await context.desk.ask(answers.pictures, context.run.id)
    if not found:
        words = "Images that a script writes to outputs/ or logs with log_image or log_figure are shown here."
        empty("image", "No images.", words, 'log_image("sample", image, step=3)')
        return
    if not all(one.here for one in found):
        with ui.row().classes("mlw-run-note"):
            ui.label("Some images are still on the target.")
            ui.button("Fetch outputs", on_click=lambda: deeds.download(context)).props("flat dense no-caps")
    with ui.element("div").classes("mlw-run-pictures"):
        for one in found[:_SHOWN]:
            _picture(context, one)
    if len(found) > _SHOWN:
        ui.link(f"and {len(found) - _SHOWN} more in the outputs", context.address(tab="outputs"))


def _picture(context: Context, one: answers.Picture) -> None:
    path = plain(one.path, 300)
    with ui.element("figure").classes("mlw-card mlw-run-picture"):
        with ui.element("h2"):
            ui.label(path)
        if one.title:
            ui.label(one.title + ("" if one.step is None else f", step {one.step}")).classes("mlw-faint")
        if not one.here:
            ui.label("not on this machine").classes("mlw-faint")
            return
        address = f"{context.api}/outputs/file?path={quote(one.path, safe='')}"
        picture = ui.element("img").classes("mlw-run-picture-image").props("loading=lazy decoding=async")
        picture._props["src"] = full_address(address)
        picture._props["alt"] = path
        ui.link("Download", address).props("download")
