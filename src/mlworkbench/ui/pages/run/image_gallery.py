"""Images tab: output images by path, and logged figures by name."""

from __future__ import annotations

from urllib.parse import quote

from nicegui import ui

from ....sanitize import plain
from ...components.empty_state import empty_state
from ...components.page_links import full_address
from ...queries import outputs as queries
from . import actions
from .page_context import RunPageContext

_MAX_IMAGES = 60


async def show(context: RunPageContext) -> None:
    images = await context.backend.call(queries.list_images, context.run.id)
    if not images:
        text = "Images that a script writes to outputs/ or logs with log_image or log_figure are shown here."
        empty_state("image", "No images.", text, 'log_image("sample", image, step=3)')
        return
    if not all(image.here for image in images):
        with ui.row().classes("mlw-run-note"):
            ui.label("Some images are still on the target.")
            ui.button("Fetch outputs", on_click=lambda: actions.download(context)).props("flat dense no-caps")
    with ui.element("div").classes("mlw-run-pictures"):
        for image in images[:_MAX_IMAGES]:
            _image(context, image)
    if len(images) > _MAX_IMAGES:
        ui.link(f"and {len(images) - _MAX_IMAGES} more in the outputs", context.address(tab="outputs"))


def _image(context: RunPageContext, image: queries.Image) -> None:
    path = plain(image.path, 300)
    with ui.element("figure").classes("mlw-card mlw-run-picture"):
        with ui.element("h2"):
            ui.label(path)
        if image.title:
            ui.label(image.title + ("" if image.step is None else f", step {image.step}")).classes("mlw-faint")
        if not image.here:
            ui.label("not on this machine").classes("mlw-faint")
            return
        address = f"{context.api}/outputs/file?path={quote(image.path, safe='')}"
        element = ui.element("img").classes("mlw-run-picture-image").props("loading=lazy decoding=async")
        element._props["src"] = full_address(address)
        element._props["alt"] = path
        ui.link("Download", address).props("download")
