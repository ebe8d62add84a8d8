"""A clock for tests. It advances only when the test calls ``advance``, or when tested code sleeps."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import pytest


class FakeClock:
    """Callable clock that returns the time in seconds. Pass it to code that takes a clock argument."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Advance the clock. A negative number sets it back, as an administrator might."""
        self.now += seconds

    def install(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
        """Replace the module's ``time``.

        ``time()`` and ``monotonic()`` return this clock's time, and ``sleep()`` advances it.
        """
        fake = SimpleNamespace(time=self, monotonic=self, perf_counter=self, sleep=self.advance)
        monkeypatch.setattr(module, "time", fake)
