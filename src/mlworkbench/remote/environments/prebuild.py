"""An environment or an image, before any run needs it: by a process that outlives the connection which asked for it."""

from __future__ import annotations

import os
import time

from ..serve import read_plain
from ..shared import machine
from ..shared.containers import REGISTRY_PASSWORD
from ..shared.environment_layout import prefix_of
from ..shared.failure import checked, text_of
from ..shared.files import read_json, write_whole
from ..shared.layout import Root
from ..shared.tree import make_private
from .environment import hold, is_sound
from .packed import is_packed
from .ready import failed

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

    from ..shared.failure import Reason

    Answer = Dict[str, Any]

LONGEST_WAIT = 5.0
_LOOK = 0.05
_CHUNK = 1 << 18
IMAGE = "image"  # kind of a lock that asks for an image only


class Places:
    """Files beside the environment that the builder and those who wait for it share."""

    def __init__(self, root: Root, lock: Answer) -> None:
        make_private(root.envs)
        prefix = prefix_of(root, lock)
        self.log = prefix + ".log"
        self.result = prefix + ".result"
        self.busy = prefix + ".busy"  # a lock


def body_of(root: Root, message: Answer) -> Callable[[Callable[[Answer], None]], None]:
    """What the process does that is left behind."""
    lock, container, packs = message["lock"], message.get("container"), bool(message.get("pack"))
    password = (message.get("secrets") or {}).get(REGISTRY_PASSWORD)
    places = Places(root, lock)

    def body(tell: Callable[[Answer], None]) -> None:
        held = machine.lock(places.busy)
        if held is None:  # somebody else asked before: the same answer serves both
            tell({"ok": True, "state": "building"})
            return
        for path in (places.log, places.result):
            if os.path.exists(path):
                os.unlink(path)
        tell({"ok": True, "state": "building"})
        problem = None
        named = dict(container, name="mlw-%s" % lock["digest"][:16]) if container else None
        if named:  # first: source packages are built in it
            from .pulling import pull_image  # noqa: PLC0415 - loads much, and here only

            problem = pull_image(named, places.log, lambda text: _say(places, text), password)
        if lock["kind"] != IMAGE and not problem:
            problem = _build(root, lock, places, packs, named)
        write_whole(places.result, {"problem": problem})

    return body


def _build(root: Root, lock: Answer, places: Places, packs: bool, container: Any) -> Any:
    from .build import ensure  # noqa: PLC0415 - loads much, and here only
    from .tools import NoEnvironment  # noqa: PLC0415

    hold(root, lock)
    try:
        ensure(root, lock, places.log, lambda text: _say(places, text), container=container)
        if packs:
            from ..spark.pack import pack  # noqa: PLC0415 - few need it

            pack(root, lock, lambda text: _say(places, text))
    except NoEnvironment as error:
        return error.failure
    except (OSError, ValueError, KeyError, TypeError) as error:
        return failed("%s: %s" % (type(error).__name__, error))
    return None


def _say(places: Places, text: str) -> None:
    with open(places.log, "ab") as file:
        file.write((text + "\n").encode("utf-8", "replace"))


def built(root: Root, request: Answer) -> Answer:
    """How far it is: ``state`` is building, ready or failed; what its log says from ``offset`` on."""
    lock, offset = request["lock"], int(request.get("offset", 0))
    places = Places(root, lock)
    until = time.monotonic() + min(LONGEST_WAIT, float(request.get("wait", 0)))
    while True:
        busy = machine.is_locked(places.busy)  # asked before the rest: what is read next is then the last word
        said = read_plain(places.log, offset, _CHUNK)
        if said or not busy or time.monotonic() >= until:
            break
        time.sleep(_LOOK)
    answer: Answer = {"ok": True, "state": "building", "said": said.decode("utf-8", "replace")}
    answer["offset"] = offset + len(said)
    if not busy and len(said) < _CHUNK:
        answer.update(_outcome(root, lock, places, bool(request.get("pack"))))
    return answer


def _outcome(root: Root, lock: Answer, places: Places, packs: bool) -> Answer:
    result = read_json(places.result, "problem")
    if result is None:
        if lock["kind"] != IMAGE and is_sound(root, lock) and (is_packed(root, lock) or not packs):
            return {"state": "ready"}
        return _unbuilt(failed("the environment builder was killed", "run 'mlw experiment prepare' again"))
    return _unbuilt(result["problem"]) if result["problem"] else {"state": "ready"}


def _unbuilt(problem: Reason) -> Answer:
    """``problem``: a text, if a builder of an earlier version wrote the result."""
    return {"state": "failed", "problem": text_of(problem), "failure": checked(problem)}
