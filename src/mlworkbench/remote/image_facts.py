"""Facts about an image: its C library, on which environments depend, and its Python."""

from __future__ import annotations

import re

from .engine import Engine, probe_command
from .engine_errors import UNFIT, start_failure

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from .shared.failure import Failure

# Most images contain getconf. In the others, run the C library as a program, which prints its version.
_LIBC_SCRIPT = (
    "getconf GNU_LIBC_VERSION 2>/dev/null || "
    "{ for one in /lib/*/libc.so.6 /lib64/libc.so.6 /usr/lib/libc.so.6 /lib/libc.so.6; do "
    '[ -x "$one" ] && "$one" && exit; done; ls /lib/ld-musl-* && echo musl; }'
)
_TIMEOUT = 60.0


def find_libc(engine: Engine, image: str) -> Optional[str]:
    """Return the glibc version (``2.36``) or ``musl``; None if the image is missing or its C library is unknown."""
    container = dict(engine.container, image=image, gpus=None)
    arguments = probe_command(container, (), ["/bin/sh", "-c", _LIBC_SCRIPT])
    code, out, _ = engine.call(*arguments[1:], timeout=_TIMEOUT)
    return parse_libc(out) if code == 0 else None


def find_python(engine: Engine, image: str) -> Optional[str]:
    """Return the Python version in the image, or None if the image or its Python is missing."""
    container = dict(engine.container, image=image, gpus=None)
    arguments = probe_command(container, (), ["python3", "--version"])
    code, out, _ = engine.call(*arguments[1:], timeout=_TIMEOUT)
    match = re.match(r"Python (\d+\.\d+\.\d+)", out) if code == 0 else None
    return match.group(1) if match else None


def parse_libc(text: str) -> Optional[str]:
    match = re.search(r"(?:glibc |release version )(2\.\d+)", text)
    return match.group(1) if match else "musl" if "musl" in text else None


def explain_libc_mismatch(engine: Engine, image: str, needed: str) -> Failure:
    """Explain why an environment cannot run in an image, and what to do about it."""
    libc = find_libc(engine, image)
    if libc == "musl":
        message = "image %s uses musl instead of glibc, which most packages need" % image
        return start_failure(message, "set baseDockerImage to an image with glibc, such as Debian or Ubuntu", UNFIT)
    if libc is None:
        message = "image %s cannot run the environment, which needs glibc %s or newer" % (image, needed)
        return start_failure(message, None, UNFIT)
    message = "image %s has glibc %s, but the environment needs %s" % (image, libc, needed)
    return start_failure(message, "submit again to build the environment for this image", UNFIT)


def inspect_image(request: Dict[str, Any]) -> Dict[str, Any]:
    """Return facts for a client that is about to resolve an environment for an image."""
    return {"ok": True, "libc": find_libc(Engine(dict(request, name="mlw")), str(request["image"]))}
