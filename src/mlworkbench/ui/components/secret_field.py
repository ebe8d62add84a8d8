"""Password field. Its text is not part of the page state, so the server never sends it back."""

from __future__ import annotations

from nicegui.element import Element

_TIMEOUT = 10.0  # seconds for the browser to respond
_MAX_LENGTH = 4096


class SecretField(Element, component="secretfield.js"):
    """Password field. ``take`` reads and clears it."""

    def __init__(self, label: str) -> None:
        super().__init__()
        self._props["label"] = label

    async def take(self) -> str | None:
        """Return the typed text and clear the field, or return None if it is empty."""
        typed = await self.run_method("take", timeout=_TIMEOUT)
        return typed[:_MAX_LENGTH] if isinstance(typed, str) and typed else None

    def clear_typed(self) -> None:
        self.run_method("clear")
