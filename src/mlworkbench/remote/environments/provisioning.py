"""Provide the environment of a run before its start; if it is missing, build it in a separate process.

The builder loads modules that a supervisor, which may run for days, should not keep in memory. If
the supervisor is killed, the build continues for the next run that needs the environment.
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
from ..shared.untrusted_json import parse_json
from .archive_record import is_packed
from .environment_state import hold_environment_lock, is_intact

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from ..run_spec import Spec
    from ..shared.failure import Failure

    Lock = Dict[str, Any]

BEAT_INTERVAL = 2.0


def provide_environment(
    root: Root,
    run: RunFolder,
    spec: Spec,
    on_build: Callable[[], None],
    beat: Callable[[], None],
    secrets: Optional[Dict[str, str]] = None,
) -> Optional[Failure]:
    """Provide the environment, and protect it from removal while this process lives. Return a failure or None.

    ``on_build`` is called if the environment must be built, and ``beat`` every few seconds during the
    build. Only the registry password in ``secrets`` is used, to pull the image for the build.
    """
    lock: Lock = spec.get("lock") or {}
    hold_environment_lock(root, lock, spec["id"])
    with_pack = bool((companion_settings(spec, "spark") or {}).get("pack"))
    is_ready = is_intact(root, lock) and _is_for_image(root, spec)
    if is_ready and not (with_pack and not is_packed(root, lock)):
        return None
    if not is_ready and not spec.get("prepare", True):
        return _not_prepared(spec)
    on_build()
    if not machine.CAN_FORK:
        return failed("environments can be built on Linux and macOS only")
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    builder = machine.fork(lambda: _build(root, run, spec, with_pack, secrets or {}, writer), keep=[writer])
    os.close(writer)
    answer = _read_result(reader, beat, lambda: _kill_builder(builder) if os.path.exists(run.cancel) else None)
    os.close(reader)
    _, status = os.waitpid(builder, 0)
    return parse_json(answer)["problem"] if answer else _killed(status)


def failed(message: str, hint: Optional[str] = None) -> Failure:
    """Return the failure for an environment that could not be built."""
    return failure("environment-failed", message, hint, "environment-failed")


def _not_prepared(spec: Spec) -> Failure:
    return failed(
        "the environment is not prepared on %s, and PrepareEnvironment is false" % spec["compute"]["name"],
        "run 'mlw experiment prepare -c %s', or set PrepareEnvironment: true" % spec["runconfig"],
    )


def _is_for_image(root: Root, spec: Spec) -> bool:
    lock: Lock = spec.get("lock") or {}
    if not lock.get("built_in"):
        return True
    from .image_environments import is_for_image  # noqa: PLC0415 - for containers only

    return is_for_image(root, lock, spec.get("container"))


def _read_result(reader: int, beat: Callable[[], None], check_cancel: Callable[[], None]) -> bytes:
    answer = b""
    waits = 0
    while True:
        if not select.select([reader], [], [], BEAT_INTERVAL)[0]:
            beat()
            waits += 1
            if waits > 1:  # the builder also checks for a cancel, but may take long to notice it
                check_cancel()
            continue
        part = os.read(reader, 65536)
        if not part:
            return answer
        answer += part


def _kill_builder(builder: int) -> None:
    os.killpg(builder, signal.SIGKILL)


def _killed(status: int) -> Failure:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return failed("the environment builder was killed, possibly because memory ran out", "submit again")
    return failed("the environment builder died", "see supervisor.log in the run folder")


def _build(root: Root, run: RunFolder, spec: Spec, with_pack: bool, secrets: Dict[str, str], writer: int) -> None:
    """Run the builder. Its output is written to the run's build.log, which clients follow."""
    from ..shared.containers import REGISTRY_PASSWORD  # noqa: PLC0415 - the supervisor does not need these modules
    from .build import Cancelled, ensure  # noqa: PLC0415
    from .build_tools import NoEnvironment  # noqa: PLC0415

    lock: Lock = spec.get("lock") or {}

    def report(text: str) -> None:
        with open(run.build_log, "ab") as file:
            file.write((text + "\n").encode("utf-8", "replace"))

    problem = None
    try:
        cancelled, password = lambda: os.path.exists(run.cancel), secrets.get(REGISTRY_PASSWORD)
        ensure(root, lock, run.build_log, report, cancelled, container=spec.get("container"), password=password)
        if with_pack:
            from ..spark.environment_archive import pack_environment  # noqa: PLC0415 - rarely needed

            pack_environment(root, lock, report, cancelled)
    except Cancelled:
        problem = failure("cancelled", "canceled before it started")
    except NoEnvironment as error:
        problem = error.failure
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = failed("%s: %s" % (type(error).__name__, error))
    os.write(writer, json.dumps({"problem": problem}).encode("ascii"))
