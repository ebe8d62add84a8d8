"""The environment of a run, before its start: it is there, or it is built now, in a process of its own.

The builder loads much that a supervisor, which stays for days, must not hold; and should the supervisor be killed, the
build goes on for the next run that wants it.
"""

from __future__ import annotations

import json
import os
import select
import signal

from ..run_spec import companion_settings
from ..shared import machine
from ..shared.failure import failure
from ..shared.layout import Root, RunFolder
from ..shared.untrusted import parse_json
from .environment import hold, is_sound
from .packed import is_packed

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from ..run_spec import Spec
    from ..shared.failure import Failure

    Lock = Dict[str, Any]

BEAT = 2.0


def make_ready(
    root: Root,
    run: RunFolder,
    spec: Spec,
    tell: Callable[[], None],
    beat: Callable[[], None],
    secrets: Optional[Dict[str, str]] = None,
) -> Optional[Failure]:
    """Why there is no environment; None: it is ready, and nobody removes it while this process lives.

    ``tell`` is called if it has to be built, ``beat`` every few seconds while it is. Of the ``secrets`` only the
    registry's password is used, if the image has to be pulled for the build.
    """
    lock: Lock = spec.get("lock") or {}
    hold(root, lock, spec["id"])
    packs = bool((companion_settings(spec, "spark") or {}).get("pack"))
    sound = is_sound(root, lock) and _is_for_image(root, spec)
    if sound and not (packs and not is_packed(root, lock)):
        return None
    if not sound and not spec.get("prepare", True):
        return _unprepared(spec)
    tell()
    if not machine.FORKS:
        return failed("environments can be built on Linux and macOS only")
    told, tell_result = os.pipe()
    os.set_inheritable(tell_result, True)
    builder = machine.fork(lambda: _build(root, run, spec, packs, secrets or {}, tell_result), keep=[tell_result])
    os.close(tell_result)
    answer = _listen(told, beat, lambda: _end(builder) if os.path.exists(run.cancel) else None)
    os.close(told)
    _, status = os.waitpid(builder, 0)
    return parse_json(answer)["problem"] if answer else _killed(status)


def failed(message: str, hint: Optional[str] = None) -> Failure:
    """The failure of an environment that was not built."""
    return failure("environment-failed", message, hint, "environment-failed")


def _unprepared(spec: Spec) -> Failure:
    return failed(
        "the environment is not prepared on %s, and PrepareEnvironment is false" % spec["compute"]["name"],
        "run 'mlw experiment prepare -c %s', or set PrepareEnvironment: true" % spec["runconfig"],
    )


def _is_for_image(root: Root, spec: Spec) -> bool:
    lock: Lock = spec.get("lock") or {}
    if not lock.get("built_in"):
        return True
    from .built_in import is_for_image  # noqa: PLC0415 - for containers only

    return is_for_image(root, lock, spec.get("container"))


def _listen(told: int, beat: Callable[[], None], end: Callable[[], None]) -> bytes:
    answer = b""
    waits = 0
    while True:
        if not select.select([told], [], [], BEAT)[0]:
            beat()
            waits += 1
            if waits > 1:  # it looks for a cancel itself, but not in the midst of everything
                end()
            continue
        part = os.read(told, 65536)
        if not part:
            return answer
        answer += part


def _end(builder: int) -> None:
    os.killpg(builder, signal.SIGKILL)


def _killed(status: int) -> Failure:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return failed("the environment builder was killed, possibly because memory ran out", "submit again")
    return failed("the environment builder died", "see supervisor.log in the run folder")


def _build(root: Root, run: RunFolder, spec: Spec, packs: bool, secrets: Dict[str, str], tell: int) -> None:
    """Body of the builder. What it says goes to the run's build.log, where followers see it."""
    from ..shared.containers import REGISTRY_PASSWORD  # noqa: PLC0415 - all that the supervisor does without
    from .build import Cancelled, ensure  # noqa: PLC0415
    from .tools import NoEnvironment  # noqa: PLC0415

    lock: Lock = spec.get("lock") or {}

    def say(text: str) -> None:
        with open(run.build_log, "ab") as file:
            file.write((text + "\n").encode("utf-8", "replace"))

    problem = None
    try:
        cancelled, password = lambda: os.path.exists(run.cancel), secrets.get(REGISTRY_PASSWORD)
        ensure(root, lock, run.build_log, say, cancelled, container=spec.get("container"), password=password)
        if packs:
            from ..spark.pack import pack  # noqa: PLC0415 - few need it

            pack(root, lock, say, cancelled)
    except Cancelled:
        problem = failure("cancelled", "canceled before it started")
    except NoEnvironment as error:
        problem = error.failure
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = failed("%s: %s" % (type(error).__name__, error))
    os.write(tell, json.dumps({"problem": problem}).encode("ascii"))
