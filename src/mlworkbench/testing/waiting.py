"""Wait for a condition. Tests use this instead of sleeping for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def wait_until(condition: Callable[[], Value], timeout: float = 60) -> Value:
    """Call ``condition`` until its result is true, and return the result."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.01)
    raise AssertionError(f"the condition was not met within {timeout:g} s")
