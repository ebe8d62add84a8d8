"""The image of a run or of a build: pulled if it is not there. The password is in memory only, and so is the log-in."""

from __future__ import annotations

from ..complaints import NOT_PULLED, explain_pull, missing
from ..engine import Engine, forget_login
from ..serve import read_plain
from ..shared.failure import failure

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from ..shared.failure import Failure

_CHUNK = 1 << 18


def pull_image(
    container: "Dict[str, Any]", log: str, say: "Callable[[str], None]", password: "Optional[str]"
) -> "Optional[Failure]":
    """Why the image is not there, in a few lines; None: it is. What the engine prints is appended to ``log``."""
    engine = Engine(container)
    if engine.call("image", "inspect", container["image"])[0] == 0:
        return None
    if not container.get("pull", True):
        return missing(container["image"])
    say("pulling image %s" % container["image"])
    try:
        env, complaint = engine.log_in(password) if container.get("registry") and password else ({}, "")
        return explain_pull(complaint, container) if complaint else _pull(engine, env, log)
    except OSError as error:
        return failure(NOT_PULLED, "image %s cannot be pulled: %s" % (container["image"], error), None, NOT_PULLED)
    finally:
        forget_login(engine.name)


def _pull(engine: Engine, env: "Dict[str, str]", log: str) -> "Optional[Failure]":
    container = engine.container
    with open(log, "ab") as file:
        start = file.tell()
        process = engine.begin([container["program"], "pull", container["image"]], stdout=file, stderr=file, env=env)
    if process.wait():
        return explain_pull(read_plain(log, start, _CHUNK).decode("utf-8", "replace")[-4096:], container)
    return None
