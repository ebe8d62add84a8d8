"""Plugins and built-in objects by name, found through entry points."""

from __future__ import annotations

import importlib
import os
from functools import lru_cache
from typing import Any

from .errors import UnknownName
from .import_isolation import module_path

_KINDS = {"targets": "compute type", "environments": "environment", "frameworks": "framework"}


def load(group: str, name: str) -> Any:
    """Return the object registered under ``name`` in ``mlworkbench.<group>``."""
    places = known(group)
    if name not in places:
        raise UnknownName(_KINDS[group], name, places)
    module, _, attribute = places[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def known(group: str) -> dict[str, str]:
    """Return all names in a group with their locations, without loading them."""
    return _all().get(f"mlworkbench.{group}", {})


@lru_cache
def _all() -> dict[str, dict[str, str]]:
    """Return the location of each name, by group and name.

    The ``entry_points.txt`` files are read directly, because importing ``importlib.metadata`` would
    cost every command 35 ms.
    """
    groups: dict[str, dict[str, str]] = {}
    for folder in module_path():  # without the current folder, because a project may contain entry points
        try:
            names = [name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue
        for name in names:
            for group, key, place in _entries(os.path.join(folder, name, "entry_points.txt")):
                groups.setdefault(group, {}).setdefault(key, place)
    return groups


def _entries(path: str) -> list[tuple[str, str, str]]:
    """Parse the entry points for mlw into tuples of group, name, and location."""
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
