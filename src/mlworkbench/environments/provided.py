"""The Python of an image or of another machine: it is used as it is, and cannot be looked at from here."""

from __future__ import annotations

from ..model import Interpreter
from ..targets.types import type_of
from .site import Settled, Site

_DEFAULT = "python3"


def given(site: Site) -> Settled:
    """Found there by its name, or where ``pythonLocation`` says."""
    compute = site.compute
    kind, whose = "target", "on the target"
    if type_of(compute).contained:
        kind, whose = "image", f"in image {compute.base_docker_image}"
    # `pythonLocation: python` stood in every project of the original: it was the default, not a choice.
    path = _DEFAULT if compute.python_location in (None, "python") else str(compute.python_location)
    return Settled({"kind": kind, "python": path, "version": None}, Interpreter(path, (0, 0, 0), f"{path} {whose}"))
