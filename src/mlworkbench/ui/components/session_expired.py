"""What a page says when its session has ended."""

from __future__ import annotations

from nicegui.element import Element


class Doorkeeper(Element, component="door.js"):
    """Nothing is seen of it until then."""
