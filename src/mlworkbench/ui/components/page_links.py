"""Addresses in pages. Below a secret path (see ``ui/address.py``), those that begin with a slash begin with that path.

NiceGUI's own elements do so by themselves. Our JavaScript calls ``mlwAddress(path)``.
"""

from __future__ import annotations

import json
from pathlib import Path

from nicegui import ui

_SHEETS = sorted(path.name for path in (Path(__file__).parents[1] / "static").glob("*.css"))


def add_head() -> None:
    """Style sheets, and ``mlwAddress`` for scripts."""
    base = full_address("")
    sheets = "".join(f'<link rel="stylesheet" href="{base}/static/{name}">' for name in _SHEETS)
    script = f'window.mlwAddress = (path) => (path.startsWith("/") ? {json.dumps(base)} + path : path);'
    ui.add_head_html(f"{sheets}<script>{script}</script>")


def full_address(path: str) -> str:
    """For elements that are not NiceGUI's own, such as ``ui.element("img")``."""
    return str(ui.context.client.request.scope.get("root_path", "")) + path


def show_address(path: str) -> None:
    """In the browser's address bar, without loading it."""
    ui.navigate.history.replace(full_address(path))
