"""Name → factory, from entry points. Built-ins and plugins come through the same door."""

from __future__ import annotations

import importlib
import os
from functools import lru_cache
from typing import Any

from .errors import UnknownName
from .isolation import module_path

_KINDS = {"targets": "compute type", "environments": "environment", "frameworks": "framework"}


def load(group: str, name: str) -> Any:
    """The object registered under ``name`` in ``mlworkbench.<group>``."""
    places = known(group)
    if name not in places:
        raise UnknownName(_KINDS[group], name, places)
    module, _, attribute = places[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def known(group: str) -> dict[str, str]:
    """All names of a group with their places, without loading any of them."""
    return _all().get(f"mlworkbench.{group}", {})


@lru_cache
def _all() -> dict[str, dict[str, str]]:
    """Group → name → place.

    Reads the ``entry_points.txt`` files itself: importlib.metadata takes 35 ms to import, and every command
    would pay for it.
    """
    found: dict[str, dict[str, str]] = {}
    for folder in module_path():  # a project may bring entry points of its own
        try:
            names = [name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue
        for name in names:
            for group, key, place in _entries(os.path.join(folder, name, "entry_points.txt")):
                found.setdefault(group, {}).setdefault(key, place)
    return found


def _entries(path: str) -> list[tuple[str, str, str]]:
    """Those of ours: group, name, place."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, ValueError):
        return []
    if "[mlworkbench." not in text:
        return []
    entries, group = [], ""
    for line in text.splitlines():
        if line.startswith("["):
            group = line.strip().strip("[]")
        elif "=" in line and group.startswith("mlworkbench."):
            key, _, place = line.partition("=")
            entries.append((group, key.strip(), place.strip()))
    return entries
