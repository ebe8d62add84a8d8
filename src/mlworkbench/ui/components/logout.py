"""The way out: this browser is forgotten, until the next link."""

from __future__ import annotations

from nicegui.element import Element


class Leave(Element, component="leave.js"):
    """Ends the session, also in the other tabs of this browser."""
