"""ML Workbench: run your scripts on any machine you can reach, and keep a history worth searching.

The door: ``log`` for scripts; ``Project``, ``History``, ``Run`` and the rest for programs. Nothing is loaded
before it is asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

from .version import __version__

_DOOR = {
    "log": "mlworkbench.remote.inrun.mlworkbench",
    "Project": "mlworkbench.config.project",
    "find_project": "mlworkbench.config.project",
    "History": "mlworkbench.history.store",
    "Run": "mlworkbench.model",
    "RunSpec": "mlworkbench.model",
    "Request": "mlworkbench.plan",
    "Entry": "mlworkbench.model",
    "user_paths": "mlworkbench.paths",
}

__all__ = ["__version__", *_DOOR]


def __getattr__(name: str) -> Any:
    if name not in _DOOR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_DOOR[name]), name)
