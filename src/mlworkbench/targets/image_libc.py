"""Determine the C library of a target's image, which decides which packages are compatible. Results are cached."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from ..config.keys import DEFAULT_IMAGE
from ..errors import HostError
from ..model import Compute
from ..paths import UserPaths
from ..remote.shared.untrusted_json import parse_json
from .target import Target
from .target_facts import TargetFacts

_TIMEOUT = 120.0  # timeout in seconds; starting a container may take long


def image_libc(
    target: Target, compute: Compute, target_facts: TargetFacts, paths: UserPaths, *, known_only: bool = False
) -> Callable[[], str | None]:
    """Return a function that returns the C library of the image, or None if it cannot be determined.

    ``known_only``: use only cached results, and do not start a container.
    """

    def ask() -> str | None:
        if target_facts.engine is None:
            return None
        image = compute.base_docker_image or DEFAULT_IMAGE
        cache_file = _cache_file(target, paths)
        cached = _read_cache(cache_file)
        if image in cached or known_only:
            return cached.get(image)
        from .container_plan import probe  # noqa: PLC0415 - for containers only

        request = probe(target_facts.engine, target_facts.uid, target_facts.gid, image)
        answer = target.host.ask({"do": "image", **request}, timeout=_TIMEOUT)
        libc = answer.get("libc") if answer.get("ok") else None
        if isinstance(libc, str):
            _write_cache(cache_file, {**cached, image: libc})
            return libc
        return None

    def safely() -> str | None:
        try:
            return ask()
        except HostError:
            return None  # the submission will fail with the same error and report it

    return safely


def forget(target: Target, compute: Compute, paths: UserPaths) -> None:
    """Remove the cached result for an image whose container did not start: its tag may have changed."""
    cache_file = _cache_file(target, paths)
    cached = _read_cache(cache_file)
    if cached.pop(compute.base_docker_image or DEFAULT_IMAGE, None):
        _write_cache(cache_file, cached)


def _cache_file(target: Target, paths: UserPaths) -> Path:
    attachment = target.host.attachment
    return (attachment.folder if attachment else paths.home / "cache") / "images.json"


def _read_cache(cache_file: Path) -> dict[str, str]:
    try:
        cached = parse_json(cache_file.read_bytes())
    except (OSError, ValueError):
        return {}  # the cache is missing or damaged
    return {str(image): str(libc) for image, libc in cached.items()} if isinstance(cached, dict) else {}


def _write_cache(cache_file: Path, cached: dict[str, str]) -> None:
    part = cache_file.with_name(f".{cache_file.name}-{os.urandom(4).hex()}")
    try:
        part.write_text(json.dumps(cached))
        part.replace(cache_file)
    except OSError:
        return  # not cached; the next call examines the image again
