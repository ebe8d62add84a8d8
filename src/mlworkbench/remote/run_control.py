"""Commands on a run: start, adopt, cancel, and build. ``__main__.py`` and the agent call them.

``start`` and ``adopt`` start a supervisor in the background, and ``build`` starts a builder.
``supervise`` becomes the supervisor.
"""

from __future__ import annotations

import os
import time

from .attempts import claim_attempt, newest_attempt, supervise_attempts, with_attempt
from .background_process import run_in_background, run_in_this_process
from .client_registry import ensure_root_identity, root_identity
from .journal import write_with_reserve
from .launcher import decide_start, launch
from .restart_detection import ELSEWHERE, RESTARTED, change_since
from .run_lock import acquire_lock
from .run_spec import read_spec
from .shared import machine
from .shared.atomic_files import read_json, write_atomic, write_once
from .shared.failpoint import failpoint
from .shared.layout import Root, RunFolder
from .shared.protocol_versions import SPEC
from .shared.run_endings import CANCELLED
from .shared.starter_names import ENDED
from .starters import starter
from .supervision import Supervision, ensure_conductor, make_conductor
from .supervisor import Supervisor

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from .run_spec import Spec
    from .starters.starter import JobStatus

    Message = Dict[str, Any]

_umask: "List[int]" = []


def restrict_umask() -> int:
    """Make all files that this process creates private. Return the original umask for use by the run."""
    if not _umask:
        _umask.append(os.umask(0o077))
    return _umask[0]


def start(root: Root, run: RunFolder, arguments: "list[str]", message: Message) -> Message:
    """Claim the run and start a supervisor. The message carries the secrets, which are never stored.

    A message from another machine also carries the spec.
    """
    umask = restrict_umask()
    if "spec" in message:
        _receive_spec(root, run, message["spec"])
    ensure_root_identity(root)
    spec = read_spec(run)
    if spec is None:
        return {"ok": False, "problem": "no run in %s" % run.path}
    if spec.get("spec") != SPEC:
        return {"ok": False, "problem": "spec version %s is not supported, expected %s" % (spec.get("spec"), SPEC)}
    if "children" in message:
        from .child_spec_file import write_children  # noqa: PLC0415 - only for sweeps

        write_children(run, message.pop("children"))  # the background process does not need them
    return starter.start(Supervision(root, run, spec, arguments[0], message.get("secrets", {}), umask, COMMANDS))


def supervise(root: Root, run: RunFolder, arguments: "list[str]", message: Message) -> Message:
    """Become the supervisor of a run. Starters run this command wherever the supervisor should run."""
    umask, spec = restrict_umask(), read_spec(run)
    if spec is None:
        return {"ok": False, "problem": "no run in %s" % run.path}
    supervision = Supervision(root, run, spec, arguments[0], message.get("secrets", {}), umask, COMMANDS)
    run_in_this_process(run, lambda respond: starter.supervise(supervision, respond))
    raise AssertionError


def _receive_spec(root: Root, run: RunFolder, spec: Message) -> None:
    """Write the spec of a run unless it already exists: the first spec wins."""
    if os.path.exists(run.spec):
        return
    os.makedirs(run.path, mode=0o700, exist_ok=True)
    write_once(run.spec, spec)
    machine.sync_folder(root.runs)


def adopt(root: Root, run: RunFolder, arguments: "list[str]", message: Message) -> Message:
    """Start a new supervisor for a run whose supervisor has died, if necessary."""
    run = newest_attempt(run)
    spec, owner = read_spec(run), read_json(run.owner, "machine", "boot_id", "processes")
    if spec is None:
        return {"ok": True, "state": "lost" if _is_lost(root, run, message.get("root")) else "away"}
    job = starter.read_status(run)
    if job is not None and job["state"] != ENDED:
        return {"ok": True, "state": "scheduled", "standing": job}
    if job is not None and _has_ended(run):
        return {"ok": True, "state": "finished"}
    if owner is None:
        return {"ok": True, "state": "unclaimed"} if job is None else _close_unclaimed(root, run, spec, job)
    if job is not None and "ending" in job:
        return _end_job(root, run, spec, job)
    change = change_since(owner)
    if change == ELSEWHERE or (change == RESTARTED and machine.is_locked(run.watcher_lock)):  # its launcher is alive
        return {"ok": True, "state": "elsewhere", "heartbeat": _heartbeat(run)}
    umask = restrict_umask()

    def body(respond: Callable[[Message], None]) -> None:
        lock = acquire_lock(run.lock)
        if lock is None:
            respond({"ok": True, "state": "supervised"})
            return
        conductor = make_conductor(root, run, spec, message.get("secrets"), COMMANDS)
        supervisor = conductor or Supervisor(root, run, spec, umask)
        if "finished" in supervisor.journal.kinds:
            respond({"ok": True, "state": "finished"})
            return
        supervisor.on_settled = lambda: respond({"ok": True, "state": "adopted", "pid": os.getpid()})
        if isinstance(supervisor, Supervisor):
            supervise_attempts(supervisor, supervisor.resume)
            ensure_conductor(root, spec, {}, adopt)
        else:
            supervisor.resume()

    return run_in_background(run, body)


def _has_ended(run: RunFolder) -> bool:
    from .environments.environment_usage import has_ended  # noqa: PLC0415 - only under a scheduler

    return has_ended(run)


def _close_unclaimed(root: Root, run: RunFolder, spec: Spec, job: JobStatus) -> Message:
    """Record that a run never starts, because its scheduler job ended before a supervisor claimed it."""
    reason = "the job ended before the run started" + ("; %s" % job["reason"] if job.get("reason") else "")
    is_canceled = job.get("ending") == CANCELLED
    decide_start(run, "never", str(job["reason"]) if is_canceled else reason, CANCELLED if is_canceled else None)
    umask = restrict_umask()
    response = run_in_background(run, Supervision(root, run, spec, os.urandom(8).hex(), {}, umask, COMMANDS).work)
    return dict(response, state="adopted") if response.get("ok") else response


def _end_job(root: Root, run: RunFolder, spec: Spec, job: JobStatus) -> Message:
    """Record the ending of a run whose scheduler job has ended without one.

    Only the scheduler's report counts: the supervisor's lock, PID, and boot belong to another machine.
    """
    umask = restrict_umask()

    def body(respond: Callable[[Message], None]) -> None:
        if machine.lock(os.path.join(run.path, "ending")) is None:
            respond({"ok": True, "state": "scheduled", "standing": job})
            return
        supervisor = Supervisor(root, run, spec, umask)
        if "finished" in supervisor.journal.kinds:
            respond({"ok": True, "state": "finished"})
            return
        supervisor.on_settled = lambda: respond({"ok": True, "state": "adopted", "pid": os.getpid()})
        supervisor.end_job(job["ending"], job.get("reason") or "the job has ended")
        claim_attempt(run.at(run.attempt + 1))  # ends what may still execute on a node that was cut off

    return run_in_background(run, body)


def _is_lost(root: Root, run: RunFolder, recorded: Optional[str]) -> bool:
    """Return whether the root folder that accepted the run exists, but the run is missing or damaged.

    A different folder in its place, such as an unmounted home folder, does not prove that a run is
    lost.
    """
    if recorded is None or root_identity(root) != recorded:
        return False
    try:
        os.stat(run.spec)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True  # present, but damaged


def _heartbeat(run: RunFolder) -> Optional[float]:
    try:
        return os.stat(run.heartbeat).st_mtime
    except OSError:
        return None


def run_launcher(root: Root, run: RunFolder, arguments: "list[str]", message: Message) -> Message:
    """Run the launcher as a separate program, on systems without fork."""
    run = newest_attempt(run)
    launch(run, with_attempt(read_spec(run) or {}, run), message.get("secrets", {}), restrict_umask())
    return {"ok": True}


def cancel(root: Root, run: RunFolder, arguments: "list[str]", message: Message) -> Message:
    """Request the end of a run. If the run has not started yet, it never will.

    If the run is not known here, the message carries its spec: the start request may still be in
    transit.
    """
    restrict_umask()
    if "spec" in message:
        _receive_spec(root, run, message["spec"])
    if read_json(run.spec) is None:
        return {"ok": True, "state": "lost"}
    grace = float(arguments[1]) if len(arguments) > 1 else None
    request: Message = {"by": arguments[0] if arguments else None, "time": time.time()}
    if grace is not None:
        request["grace"] = grace
    write_with_reserve(run, lambda: write_atomic(run.cancel, request))
    failpoint("cancel-asked")
    attempt = newest_attempt(run)
    if read_json(attempt.start_decision) is None:
        decide_start(attempt, "never", "canceled before it started")
    if starter.cancel(run, grace):
        adopt(root, run, [], {})  # do not wait for a request, because the client may disconnect
    return {"ok": True, "state": "asked"}


def build(root: Root, run: RunFolder, arguments: "list[str]", message: Message) -> Message:
    """Build an environment before a run needs it."""
    restrict_umask()
    from .environments.prebuild import make_builder  # noqa: PLC0415 - runs do not need it

    return run_in_background(run, make_builder(root, message))


COMMANDS = {
    "start": start,
    "supervise": supervise,
    "adopt": adopt,
    "cancel": cancel,
    "launch": run_launcher,
    "build": build,
}
