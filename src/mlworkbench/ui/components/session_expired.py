"""Notice that the session has expired."""

from __future__ import annotations

from nicegui.element import Element


class SessionExpiredNotice(Element, component="door.js"):
    """Notice that appears when the session is no longer valid."""
