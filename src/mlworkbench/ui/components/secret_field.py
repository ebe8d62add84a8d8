"""A field for a secret: it is no value of the page's, so the server never sends it back."""

from __future__ import annotations

from nicegui.element import Element

_PATIENCE = 10.0  # seconds for the page to hand it over
_LONGEST = 4096


class SecretField(Element, component="secretfield.js"):
    """``take`` empties it."""

    def __init__(self, label: str) -> None:
        super().__init__()
        self._props["label"] = label

    async def take(self) -> str | None:
        """What was typed, once; None if nothing was."""
        typed = await self.run_method("take", timeout=_PATIENCE)
        return typed[:_LONGEST] if isinstance(typed, str) and typed else None

    def clear_typed(self) -> None:
        self.run_method("clear")
