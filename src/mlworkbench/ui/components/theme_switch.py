"""The switch between light and dark."""

from __future__ import annotations

from nicegui.element import Element


class Theme(Element, component="theme.js"):
    """Light, dark, or as the system has it."""
