"""Logout button. Logging in again requires a new link."""

from __future__ import annotations

from nicegui.element import Element


class LogoutButton(Element, component="leave.js"):
    """Button that ends the session in all tabs of this browser."""
