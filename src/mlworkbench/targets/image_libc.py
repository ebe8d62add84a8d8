"""The C library of a target's image, asked once: an environment has to be made for it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from ..config.keys import DEFAULT_IMAGE
from ..errors import HostError
from ..model import Compute
from ..paths import UserPaths
from ..remote.shared.untrusted import parse_json
from .container import probe
from .ground import Ground
from .target import Target

_LONGEST = 120.0  # the engine starts a container for it


def image_libc(
    target: Target, compute: Compute, ground: Ground, paths: UserPaths, *, known_only: bool = False
) -> Callable[[], str | None]:
    """A question, put when it is called; None while the image is not there.

    ``known_only``: no container of the image is started for it.
    """

    def ask() -> str | None:
        if ground.engine is None:
            return None
        image = compute.base_docker_image or DEFAULT_IMAGE
        memory = _memory(target, paths)
        known = _recall(memory)
        if image in known or known_only:
            return known.get(image)
        asked = probe(ground.engine, ground.uid, ground.gid, image)
        answer = target.host.ask({"do": "image", **asked}, patience=_LONGEST)
        found = answer.get("libc") if answer.get("ok") else None
        if isinstance(found, str):
            _remember(memory, {**known, image: found})
            return found
        return None

    def safely() -> str | None:
        try:
            return ask()
        except HostError:
            return None  # the submit meets it again, where it is told

    return safely


def forget(target: Target, compute: Compute, paths: UserPaths) -> None:
    """A container did not start: its image may not be the one that was asked."""
    memory = _memory(target, paths)
    known = _recall(memory)
    if known.pop(compute.base_docker_image or DEFAULT_IMAGE, None):
        _remember(memory, known)


def _memory(target: Target, paths: UserPaths) -> Path:
    attachment = target.host.attachment
    return (attachment.folder if attachment else paths.home / "cache") / "images.json"


def _recall(memory: Path) -> dict[str, str]:
    try:
        known = parse_json(memory.read_bytes())
    except (OSError, ValueError):
        return {}  # it is only a cache
    return {str(image): str(libc) for image, libc in known.items()} if isinstance(known, dict) else {}


def _remember(memory: Path, known: dict[str, str]) -> None:
    part = memory.with_name(f".{memory.name}-{os.urandom(4).hex()}")
    try:
        part.write_text(json.dumps(known))
        part.replace(memory)
    except OSError:
        return  # asked again next time
