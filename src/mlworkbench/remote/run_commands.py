"""The verbs on a run: start, adopt, cancel; and build. Asked for by the command line (``__main__.py``) and the agent.

``start`` and ``adopt`` leave a supervisor behind that outlives us, ``build`` a builder. ``supervise`` is one itself.
"""

from __future__ import annotations

import os
import time

from .background import leave_behind, stay
from .clients import mark_root, root_identity
from .journal import spare_room
from .launcher import launch, pass_gate
from .restart import ELSEWHERE, RESTARTED, change_since
from .run_lock import hold
from .run_spec import read_spec
from .shared import machine
from .shared.failpoint import failpoint
from .shared.files import read_json, write_first, write_whole
from .shared.layout import Root, RunFolder
from .shared.starter_names import ENDED
from .shared.versions import SPEC
from .starters import starter
from .supervision import Supervision, conductor_of, pass_on
from .supervisor import Supervisor

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from .run_spec import Spec
    from .starters.starter import Standing

    Answer = Dict[str, Any]

_umask: "List[int]" = []


def private() -> int:
    """From now on what this process writes is its user's alone; the umask before, which the run gets back."""
    if not _umask:
        _umask.append(os.umask(0o077))
    return _umask[0]


def start(root: Root, run: RunFolder, words: "list[str]", message: Answer) -> Answer:
    """Claim the run and leave a supervisor at work. Secrets are in the message: they touch no file.

    From another machine the message also brings the spec.
    """
    umask = private()
    if "spec" in message:
        _receive_spec(root, run, message["spec"])
    mark_root(root)
    spec = read_spec(run)
    if spec is None:
        return {"ok": False, "problem": "no run in %s" % run.path}
    if spec.get("spec") != SPEC:
        return {"ok": False, "problem": "spec version %s is not supported, expected %s" % (spec.get("spec"), SPEC)}
    if "children" in message:
        from .children import keep  # noqa: PLC0415 - other runs do without

        keep(run, message.pop("children"))  # what we leave behind need not hold them
    return starter.start(Supervision(root, run, spec, words[0], message.get("secrets", {}), umask, VERBS))


def supervise(root: Root, run: RunFolder, words: "list[str]", message: Answer) -> Answer:
    """Become the supervisor of a run: what a starter has called where the supervisor is to run."""
    umask, spec = private(), read_spec(run)
    if spec is None:
        return {"ok": False, "problem": "no run in %s" % run.path}
    stay(run, Supervision(root, run, spec, words[0], message.get("secrets", {}), umask, VERBS).work)
    raise AssertionError


def _receive_spec(root: Root, run: RunFolder, spec: Answer) -> None:
    """The first spec of a run is the spec of the run."""
    if os.path.exists(run.spec):
        return
    os.makedirs(run.path, mode=0o700, exist_ok=True)
    write_first(run.spec, spec)
    machine.sync_folder(root.runs)


def adopt(root: Root, run: RunFolder, words: "list[str]", message: Answer) -> Answer:
    """Put a new supervisor to work on a run whose old one is gone; do nothing if there is nothing to do."""
    spec, owner = read_spec(run), read_json(run.owner, "machine", "boot_id", "processes")
    if spec is None:
        return {"ok": True, "state": "lost" if _is_lost(root, run, message.get("root")) else "away"}
    standing = starter.standing_of(run)
    if standing is not None and standing["state"] != ENDED:
        return {"ok": True, "state": "supervised", "standing": standing}
    if owner is None:
        return {"ok": True, "state": "unclaimed"} if standing is None else _close(root, run, spec, standing)
    change = change_since(owner)
    if change == ELSEWHERE or (change == RESTARTED and machine.is_locked(run.watch)):  # its launcher lives
        return {"ok": True, "state": "elsewhere", "heartbeat": _heartbeat(run)}
    private()

    def body(tell: Callable[[Answer], None]) -> None:
        held = hold(run.lock)
        if held is None:
            tell({"ok": True, "state": "supervised"})
            return
        supervisor = conductor_of(root, run, spec, message.get("secrets"), VERBS) or Supervisor(root, run, spec)
        if "finished" in supervisor.journal.kinds:
            tell({"ok": True, "state": "finished"})
            return
        supervisor.settled = lambda: tell({"ok": True, "state": "adopted", "pid": os.getpid()})
        supervisor.go_on()
        if not spec.get("sweep"):
            pass_on(root, spec, {}, adopt)

    return leave_behind(run, body)


def _close(root: Root, run: RunFolder, spec: Spec, standing: Standing) -> Answer:
    """A scheduler has ended a job before its supervisor claimed the run: decide that it never starts, and record it."""
    reason = "the job ended before the run started" + ("; %s" % standing["reason"] if standing.get("reason") else "")
    pass_gate(run, "never", reason)
    umask = private()
    answer = leave_behind(run, Supervision(root, run, spec, os.urandom(8).hex(), {}, umask, VERBS).work)
    return dict(answer, state="adopted") if answer.get("ok") else answer


def _is_lost(root: Root, run: RunFolder, recorded: Optional[str]) -> bool:
    """Whether the root folder that took the run on is here, and the run is not.

    Another folder in its place, as below the mount point of a home, is no evidence about a run.
    """
    if recorded is None or root_identity(root) != recorded:
        return False
    try:
        os.stat(run.spec)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True  # there, and damaged


def _heartbeat(run: RunFolder) -> Optional[float]:
    try:
        return os.stat(run.heartbeat).st_mtime
    except OSError:
        return None


def start_launcher(root: Root, run: RunFolder, words: "list[str]", message: Answer) -> Answer:
    """Where there is no fork, the launcher is a call of its own."""
    launch(run, read_spec(run) or {}, message.get("secrets", {}), private())
    return {"ok": True}


def cancel(root: Root, run: RunFolder, words: "list[str]", message: Answer) -> Answer:
    """Ask for the end of a run. One that has not started will never start.

    One that this machine has not heard of yet comes with its spec: its launch may still be on the way.
    """
    private()
    if "spec" in message:
        _receive_spec(root, run, message["spec"])
    if read_json(run.spec) is None:
        return {"ok": True, "state": "lost"}
    grace = float(words[1]) if len(words) > 1 else None
    request: Answer = {"by": words[0] if words else None, "time": time.time()}
    if grace is not None:
        request["grace"] = grace
    spare_room(run, lambda: write_whole(run.cancel, request))
    failpoint("cancel-asked")
    if read_json(run.gate) is None:
        pass_gate(run, "never", "canceled before it started")
    if starter.cancel(run, grace):
        adopt(root, run, [], {})  # at once: whoever asked may lose contact now
    return {"ok": True, "state": "asked"}


def build(root: Root, run: RunFolder, words: "list[str]", message: Answer) -> Answer:
    """Build an environment before any run needs it."""
    private()
    from .environments.ahead import body_of  # noqa: PLC0415 - runs do without

    return leave_behind(run, body_of(root, message))


VERBS = {
    "start": start,
    "supervise": supervise,
    "adopt": adopt,
    "cancel": cancel,
    "launch": start_launcher,
    "build": build,
}
