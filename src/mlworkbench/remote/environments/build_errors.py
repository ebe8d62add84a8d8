"""Interpret the output of a program that failed to build an environment."""

from __future__ import annotations

from ..shared.failure import DISK_FULL, HINT
from ..shared.network_errors import find_network_error, find_url
from ..shared.unpacking_limits import MAKE_ROOM, TOO_LARGE, is_file_size_error
from .build_tools import NoEnvironment, NotFetched


def parse_build_error(output: str, root: str) -> NoEnvironment:
    """Return the failure indicated by the last output lines of uv, py-rattler, git, or a build."""
    output = without_hint(output)
    if "No space left on device" in output or "Disk quota exceeded" in output:
        return disk_full_error(root)
    if is_file_size_error(output):
        return NoEnvironment("a package contains a file that is too large: %s" % output, TOO_LARGE)
    cause = find_network_error(output)
    return NotFetched(find_url(output) or "a package", cause) if cause else NoEnvironment(output)


def disk_full_error(root: str) -> NoEnvironment:
    """Return the failure for a full disk."""
    return NoEnvironment("the disk that holds %s is full" % root, MAKE_ROOM, DISK_FULL, DISK_FULL)


def without_hint(output: str) -> str:
    """Replace text in program output that earlier clients would mistake for an mlw hint."""
    return output.replace(HINT, "; hint - ")
