"""A clock that moves only when a test says so."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import pytest


class FakeClock:
    """Call it for the time in seconds: where code takes a clock as an argument, pass this object."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock. A negative number sets it back, as an administrator can."""
        self.now += seconds

    def install(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
        """Replace the module's ``time``: ``time()`` and ``monotonic()`` are this clock, ``sleep()`` advances it."""
        fake = SimpleNamespace(time=self, monotonic=self, perf_counter=self, sleep=self.advance)
        monkeypatch.setattr(module, "time", fake)
