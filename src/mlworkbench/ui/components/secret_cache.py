"""Secret that the server keeps in memory between two attach attempts, for at most two minutes."""

from __future__ import annotations

import asyncio

LIFETIME = 120.0  # seconds


class SecretCache:
    """Temporary secret. ``value`` is None after it has expired."""

    def __init__(self, lifetime: float = LIFETIME) -> None:
        self._longest = lifetime
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
        return "SecretCache(…)"
