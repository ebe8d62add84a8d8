"""URLs in pages. Absolute paths start with the secret path, if any (see ``ui/cookie_isolation.py``).

NiceGUI elements add the secret path automatically. Our JavaScript calls ``mlwAddress(path)``.
"""

from __future__ import annotations

import json
from pathlib import Path

from nicegui import ui

_SHEETS = sorted(path.name for path in (Path(__file__).parents[1] / "static").glob("*.css"))


def add_head() -> None:
    """Add the style sheets and the ``mlwAddress`` function to the page head."""
    base = full_address("")
    sheets = "".join(f'<link rel="stylesheet" href="{base}/static/{name}">' for name in _SHEETS)
    script = f'window.mlwAddress = (path) => (path.startsWith("/") ? {json.dumps(base)} + path : path);'
    ui.add_head_html(f"{sheets}<script>{script}</script>")


def full_address(path: str) -> str:
    """Return the full path for elements that NiceGUI does not handle, such as ``ui.element("img")``."""
    return str(ui.context.client.request.scope.get("root_path", "")) + path


def show_address(path: str) -> None:
    """Set the URL in the browser's address bar without loading it."""
    ui.navigate.history.replace(full_address(path))
