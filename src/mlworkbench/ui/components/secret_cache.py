"""A secret between two attempts: in the server's memory, for two minutes at most."""

from __future__ import annotations

import asyncio

LONGEST = 120.0  # seconds


class Held:
    """``value`` is None when it is gone."""

    def __init__(self, longest: float = LONGEST) -> None:
        self._longest = longest
        self._value: str | None = None
        self._end: asyncio.TimerHandle | None = None

    @property
    def value(self) -> str | None:
        return self._value

    def keep(self, value: str | None) -> None:
        self.drop()
        self._value = value
        if value is not None:
            self._end = asyncio.get_running_loop().call_later(self._longest, self.drop)

    def drop(self) -> None:
        self._value = None
        if self._end is not None:
            self._end.cancel()
            self._end = None

    def __repr__(self) -> str:
        return "Held(…)"
