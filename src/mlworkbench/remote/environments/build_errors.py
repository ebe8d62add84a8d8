"""What the output of a program that failed to build an environment means."""

from __future__ import annotations

from ..shared.failure import DISK_FULL, HINT
from ..shared.network_errors import address_in, why_not_reached
from ..shared.unpacking_limits import MAKE_ROOM, TOO_LARGE, is_too_large
from .tools import NoEnvironment, NotFetched


def meaning_of(said: str, root: str) -> NoEnvironment:
    """The failure behind the last words of uv, py-rattler, git, or a build."""
    said = without_advice(said)
    if "No space left on device" in said or "Disk quota exceeded" in said:
        return full(root)
    if is_too_large(said):
        return NoEnvironment("a package contains a file that is too large: %s" % said, TOO_LARGE)
    why = why_not_reached(said)
    return NotFetched(address_in(said) or "a package", why) if why else NoEnvironment(said)


def full(root: str) -> NoEnvironment:
    """The disk below a folder has no space left."""
    return NoEnvironment("the disk that holds %s is full" % root, MAKE_ROOM, DISK_FULL, DISK_FULL)


def without_advice(said: str) -> str:
    """The output of a program, which clients of earlier versions must not take for a hint of ours."""
    return said.replace(HINT, "; hint - ")
