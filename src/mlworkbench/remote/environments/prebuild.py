"""Build an environment or pull an image before any run, in a process that outlives the connection."""

from __future__ import annotations

import os
import time

from ..run_reader import read_regular_file
from ..shared import machine
from ..shared.atomic_files import read_json, write_atomic
from ..shared.containers import REGISTRY_PASSWORD
from ..shared.environment_layout import prefix_of
from ..shared.failure import parse_failure, text_of
from ..shared.folder_tree import make_private
from ..shared.layout import Root
from .archive_record import is_packed
from .environment_state import hold_environment_lock, is_intact
from .provisioning import failed

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

    from ..shared.failure import Reason

    Answer = Dict[str, Any]

MAX_WAIT = 5.0
_POLL_INTERVAL = 0.05
_CHUNK = 1 << 18
IMAGE = "image"  # kind of lock that requests only an image


class BuildFiles:
    """Files next to the environment that the builder shares with waiting clients."""

    def __init__(self, root: Root, lock: Answer) -> None:
        make_private(root.envs)
        prefix = prefix_of(root, lock)
        self.log = prefix + ".log"
        self.result = prefix + ".result"
        self.busy = prefix + ".busy"  # locked during the build


def make_builder(root: Root, message: Answer) -> Callable[[Callable[[Answer], None]], None]:
    """Return the function that pulls the image and builds the environment in a background process."""
    lock, container, with_pack = message["lock"], message.get("container"), bool(message.get("pack"))
    password = (message.get("secrets") or {}).get(REGISTRY_PASSWORD)
    files = BuildFiles(root, lock)

    def body(answer: Callable[[Answer], None]) -> None:
        lock_descriptor = machine.lock(files.busy)
        if lock_descriptor is None:  # another request is building it: both get the same answer
            answer({"ok": True, "state": "building"})
            return
        for path in (files.log, files.result):
            if os.path.exists(path):
                os.unlink(path)
        answer({"ok": True, "state": "building"})
        problem = None
        build_container = dict(container, name="mlw-%s" % lock["digest"][:16]) if container else None
        if build_container:  # pull the image first, because source packages are built in it
            from .image_pull import pull_image  # noqa: PLC0415 - loads many modules, needed only here

            problem = pull_image(build_container, files.log, lambda text: _report(files, text), password)
        if lock["kind"] != IMAGE and not problem:
            problem = _build(root, lock, files, with_pack, build_container)
        write_atomic(files.result, {"problem": problem})

    return body


def _build(root: Root, lock: Answer, files: BuildFiles, with_pack: bool, container: Any) -> Any:
    from .build import ensure  # noqa: PLC0415 - loads many modules, needed only here
    from .build_tools import NoEnvironment  # noqa: PLC0415

    hold_environment_lock(root, lock)
    try:
        ensure(root, lock, files.log, lambda text: _report(files, text), container=container)
        if with_pack:
            from ..spark.environment_archive import pack_environment  # noqa: PLC0415 - rarely needed

            pack_environment(root, lock, lambda text: _report(files, text))
    except NoEnvironment as error:
        return error.failure
    except (OSError, ValueError, KeyError, TypeError) as error:
        return failed("%s: %s" % (type(error).__name__, error))
    return None


def _report(files: BuildFiles, text: str) -> None:
    with open(files.log, "ab") as file:
        file.write((text + "\n").encode("utf-8", "replace"))


def build_status(root: Root, request: Answer) -> Answer:
    """Return ``state`` (building, ready, or failed) and ``said``, the log starting at ``offset``."""
    lock, offset = request["lock"], int(request.get("offset", 0))
    files = BuildFiles(root, lock)
    deadline = time.monotonic() + min(MAX_WAIT, float(request.get("wait", 0)))
    while True:
        busy = machine.is_locked(files.busy)  # checked first: if it is not busy, the log is complete
        output = read_regular_file(files.log, offset, _CHUNK)
        if output or not busy or time.monotonic() >= deadline:
            break
        time.sleep(_POLL_INTERVAL)
    answer: Answer = {"ok": True, "state": "building", "said": output.decode("utf-8", "replace")}
    answer["offset"] = offset + len(output)
    if not busy and len(output) < _CHUNK:
        answer.update(_outcome(root, lock, files, bool(request.get("pack"))))
    return answer


def _outcome(root: Root, lock: Answer, files: BuildFiles, with_pack: bool) -> Answer:
    result = read_json(files.result, "problem")
    if result is None:
        if lock["kind"] != IMAGE and is_intact(root, lock) and (is_packed(root, lock) or not with_pack):
            return {"state": "ready"}
        return _failed_answer(failed("the environment builder was killed", "run 'mlw experiment prepare' again"))
    return _failed_answer(result["problem"]) if result["problem"] else {"state": "ready"}


def _failed_answer(problem: Reason) -> Answer:
    """Return the response for a failed build. ``problem`` is a string if an earlier version wrote it."""
    return {"state": "failed", "problem": text_of(problem), "failure": parse_failure(problem)}
