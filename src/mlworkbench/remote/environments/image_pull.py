"""Pull the image of a run or build if it is missing. Passwords and registry logins stay in memory."""

from __future__ import annotations

from ..engine import Engine, remove_login
from ..engine_errors import NOT_PULLED, explain_pull, missing_image
from ..run_reader import read_regular_file
from ..shared.failure import failure

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from ..shared.failure import Failure

_CHUNK = 1 << 18


def pull_image(
    container: "Dict[str, Any]", log: str, report: "Callable[[str], None]", password: "Optional[str]"
) -> "Optional[Failure]":
    """Pull the image if it is missing, and log the engine's output. Return a failure, or None."""
    engine = Engine(container)
    if engine.call("image", "inspect", container["image"])[0] == 0:
        return None
    if not container.get("pull", True):
        return missing_image(container["image"])
    report("pulling image %s" % container["image"])
    try:
        env, complaint = engine.log_in(password) if container.get("registry") and password else ({}, "")
        return explain_pull(complaint, container) if complaint else _pull(engine, env, log)
    except OSError as error:
        return failure(NOT_PULLED, "image %s cannot be pulled: %s" % (container["image"], error), None, NOT_PULLED)
    finally:
        remove_login(engine.name)


def _pull(engine: Engine, env: "Dict[str, str]", log: str) -> "Optional[Failure]":
    container = engine.container
    with open(log, "ab") as file:
        start = file.tell()
        process = engine.start_process(
            [container["program"], "pull", container["image"]], stdout=file, stderr=file, env=env
        )
    if process.wait():
        return explain_pull(read_regular_file(log, start, _CHUNK).decode("utf-8", "replace")[-4096:], container)
    return None
