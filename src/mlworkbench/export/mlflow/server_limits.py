"""What an MLflow server accepts, by its version."""

from __future__ import annotations

import re
from dataclasses import dataclass

_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})")


@dataclass(frozen=True)
class ServerLimits:
    """Limits of a version of MLflow."""

    version: str = ""  # empty if the server does not report it
    has_colon: bool = False  # in names of parameters, metrics, and tags
    tag_length: int = 5000
    has_models: bool = False  # logged models
    has_traces: bool = False  # creation of traces that have ended


def limits_of(version: str) -> ServerLimits:
    """Return the limits of this version. Without a known version, assume an old one, whose limits suit all servers."""
    match = _VERSION.match(version)
    if match is None:
        return ServerLimits()
    number = int(match[1]), int(match[2])
    return ServerLimits(
        match[0],
        has_colon=number >= (2, 16),
        tag_length=8000 if number >= (2, 17) else 5000,
        has_models=number >= (3, 0),
        has_traces=number >= (3, 2),
    )
