"""Theme selector."""

from __future__ import annotations

from nicegui.element import Element


class ThemeSwitch(Element, component="theme.js"):
    """Switch between the light, dark, and system themes."""
