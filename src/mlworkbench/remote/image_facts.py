"""What an image has: its C library, on which an environment of ours runs, and a Python of its own."""

from __future__ import annotations

import re

from .complaints import UNFIT, unstarted
from .engine import Engine, probe_command

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from .shared.failure import Failure

# getconf is in every image with a shell but the smallest; a C library that is run as a program tells its version.
_ASK = (
    "getconf GNU_LIBC_VERSION 2>/dev/null || "
    "{ for one in /lib/*/libc.so.6 /lib64/libc.so.6 /usr/lib/libc.so.6 /lib/libc.so.6; do "
    '[ -x "$one" ] && "$one" && exit; done; ls /lib/ld-musl-* && echo musl; }'
)
_PATIENCE = 60.0


def libc_of(engine: Engine, image: str) -> Optional[str]:
    """``2.36``, ``musl``, or None: the image is not here, or does not say."""
    container = dict(engine.container, image=image, gpus=None)
    words = probe_command(container, (), ["/bin/sh", "-c", _ASK])
    code, out, _ = engine.call(*words[1:], timeout=_PATIENCE)
    return read(out) if code == 0 else None


def python_in(engine: Engine, image: str) -> Optional[str]:
    """Version of the Python that scripts would get in an image; None: the image is not here, or has none."""
    container = dict(engine.container, image=image, gpus=None)
    words = probe_command(container, (), ["python3", "--version"])
    code, out, _ = engine.call(*words[1:], timeout=_PATIENCE)
    found = re.match(r"Python (\d+\.\d+\.\d+)", out) if code == 0 else None
    return found.group(1) if found else None


def read(text: str) -> Optional[str]:
    found = re.search(r"(?:glibc |release version )(2\.\d+)", text)
    return found.group(1) if found else "musl" if "musl" in text else None


def misfit(engine: Engine, image: str, needed: str) -> Failure:
    """Why an environment does not run in an image, and what to do about it."""
    there = libc_of(engine, image)
    if there == "musl":
        words = "image %s uses musl instead of glibc, which most packages need" % image
        return unstarted(words, "set baseDockerImage to an image with glibc, such as Debian or Ubuntu", UNFIT)
    if there is None:
        words = "image %s cannot run the environment, which needs glibc %s or newer" % (image, needed)
        return unstarted(words, None, UNFIT)
    words = "image %s has glibc %s, but the environment needs %s" % (image, there, needed)
    return unstarted(words, "submit again to build the environment for this image", UNFIT)


def ask(request: Dict[str, Any]) -> Dict[str, Any]:
    """For a client that is about to solve an environment for an image."""
    return {"ok": True, "libc": libc_of(Engine(dict(request, name="mlw")), str(request["image"]))}
