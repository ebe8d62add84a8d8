"""One key of a configuration file: its type, its default, and one sentence of documentation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Key:
    """One key of one kind of file. ``kind`` names the reader in ``config.readers``."""

    name: str
    kind: str
    doc: str
    # Field of the value in model.py. None: a key of a plugin's compute type, whose value is in Compute.settings, or an
    # old key, which is accepted but has no effect.
    field: str | None = None
    default: object = None
    required: bool = False  # by the compute type that lists this key
    choices: tuple[str, ...] = ()
    open: bool = False  # there are other choices, too
    plugins: str = ""  # group of ``registry`` that they come from; they may be any if it is empty
    instead: str | None = None  # for a retired key: what to write today
    was: tuple[str, ...] = ()  # names it had before
    modern: tuple[str, ...] = ()  # where it stands in a run configuration of April 2018
