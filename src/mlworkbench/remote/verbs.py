"""The verbs on a run: start, adopt, cancel; and build. Asked for by the command line (``__main__.py``) and the agent.

``start`` and ``adopt`` leave a supervisor behind that outlives us, ``build`` a builder.
"""

from __future__ import annotations

import json
import os
import signal
import time

from . import PROTOCOL, SPEC, machine
from .claim import claim, has_claim
from .clients import mark_root, root_identity
from .failpoint import failpoint
from .folder import Root, RunFolder
from .journal import log, read_json, spare_room, write_first, write_whole
from .launcher import launch, pass_gate
from .resources.resource import join_queues
from .restart import ELSEWHERE, RESTARTED, change_since
from .run_lock import hold
from .supervisor import Supervisor
from .unresponsive import rouse
from .untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from .sweep import Conductor

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
    spec = read_json(run.spec)
    if spec is None:
        return {"ok": False, "problem": "no run in %s" % run.path}
    if spec.get("spec") != SPEC:
        return {"ok": False, "problem": "spec version %s is not supported, expected %s" % (spec.get("spec"), SPEC)}
    if "children" in message:
        from .children import keep  # noqa: PLC0415 - other runs do without

        keep(run, message.pop("children"))  # what we leave behind need not hold them

    def body(tell: Callable[[Answer], None]) -> None:
        held = _lock_patiently(run)
        if held is None or not claim(run, words[0]):
            # Asked for again, because the answer to the first time was lost: that it was us is what counts.
            tell({"ok": True, "claimed": has_claim(run, words[0]), "owner": read_json(run.owner)})
            return
        failpoint("claimed")
        secrets, conductor = message.get("secrets", {}), _conductor(root, run, spec or {}, message)
        if conductor is None:
            join_queues(root, spec or {})
        tell({"ok": True, "claimed": True, "protocol": PROTOCOL, "pid": os.getpid()})
        if conductor is not None:
            conductor.begin()
            return
        Supervisor(root, run, spec or {}).begin(secrets, umask)
        _pass_on(root, spec or {}, {"secrets": secrets})

    return _leave_behind(run, body)


def _conductor(root: Root, run: RunFolder, spec: Answer, message: Answer) -> Optional[Conductor]:
    """Of a sweep; other runs have a supervisor."""
    if not spec.get("sweep"):
        return None
    from .sweep import Conductor  # noqa: PLC0415 - other runs do without

    return Conductor(root, run, spec, message.get("secrets"), VERBS)


def _pass_on(root: Root, spec: Answer, message: Answer) -> None:
    """A run of a sweep has ended: should its conductor have died, here is a new one."""
    parent = root.run(str(spec.get("parent")))
    if spec.get("parent") and os.path.exists(parent.owner) and not machine.is_locked(parent.lock):
        adopt(root, parent, [], message)


def _receive_spec(root: Root, run: RunFolder, spec: Answer) -> None:
    """The first spec of a run is the spec of the run."""
    if os.path.exists(run.spec):
        return
    os.makedirs(run.path, mode=0o700, exist_ok=True)
    write_first(run.spec, spec)
    machine.sync_folder(root.runs)


def _lock_patiently(run: RunFolder) -> Optional[int]:
    """Somebody who merely looks holds the lock for a moment; only a claim says that the run is taken."""
    for _ in range(20):
        held = hold(run.lock)
        if held is not None or os.path.exists(run.owner):
            return held
        time.sleep(0.01)
    return None


def adopt(root: Root, run: RunFolder, words: "list[str]", message: Answer) -> Answer:
    """Put a new supervisor to work on a run whose old one is gone; do nothing if there is nothing to do."""
    spec, owner = read_json(run.spec), read_json(run.owner, "machine", "boot_id", "processes")
    if spec is None:
        return {"ok": True, "state": "lost" if _is_lost(root, run, message.get("root")) else "away"}
    if owner is None:
        return {"ok": True, "state": "unclaimed"}
    change = change_since(owner)
    if change == ELSEWHERE or (change == RESTARTED and machine.is_locked(run.watch)):  # its launcher lives
        return {"ok": True, "state": "elsewhere", "heartbeat": _heartbeat(run)}
    private()

    def body(tell: Callable[[Answer], None]) -> None:
        held = hold(run.lock)
        if held is None:
            tell({"ok": True, "state": "supervised"})
            return
        supervisor = _conductor(root, run, spec or {}, message) or Supervisor(root, run, spec or {})
        if "finished" in supervisor.journal.kinds:
            tell({"ok": True, "state": "finished"})
            return
        supervisor.settled = lambda: tell({"ok": True, "state": "adopted", "pid": os.getpid()})
        supervisor.go_on()
        if not (spec or {}).get("sweep"):
            _pass_on(root, spec or {}, {})

    return _leave_behind(run, body)


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
    launch(run, read_json(run.spec) or {}, message.get("secrets", {}), private())
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
    request: Answer = {"by": words[0] if words else None, "time": time.time()}
    if len(words) > 1:
        request["grace"] = float(words[1])
    spare_room(run, lambda: write_whole(run.cancel, request))
    failpoint("cancel-asked")
    if read_json(run.gate) is None:
        pass_gate(run, "never", "canceled before it started")
    if machine.FORKS and rouse(run):
        adopt(root, run, [], {})  # at once: whoever asked may lose contact now
    return {"ok": True, "state": "asked"}


def build(root: Root, run: RunFolder, words: "list[str]", message: Answer) -> Answer:
    """Build an environment before any run needs it."""
    private()
    from .environments.ahead import body_of  # noqa: PLC0415 - runs do without

    return _leave_behind(run, body_of(root, message))


def _leave_behind(run: RunFolder, body: Callable[[Callable[[Answer], None]], None]) -> Answer:
    """Run ``body`` in a process of its own; wait only for the one answer that it tells."""
    if not machine.FORKS:  # Windows: this process stays and supervises; the caller reads the answer and goes
        _work(run, body, os.dup(1))
        raise SystemExit(0)
    told, tell = os.pipe()
    os.set_inheritable(tell, True)
    machine.fork(lambda: _work(run, body, tell), keep=[tell])
    os.close(tell)
    answer = b""
    while True:
        part = os.read(told, 65536)
        if not part:
            break
        answer += part
    os.close(told)
    return parse_json(answer) if answer else {"ok": False, "problem": "the supervisor died immediately"}


def _work(run: RunFolder, body: Callable[[Callable[[Answer], None]], None], tell: int) -> None:
    """The process that stays."""
    signal.set_wakeup_fd(-1)  # a conductor's, from whom we may come, is closed here, and its number free for others
    if machine.FORKS:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _quiet(run)
    answered = []

    def answer(data: Answer) -> None:
        answered.append(data)
        try:
            os.write(tell, json.dumps(data).encode("ascii"))
        except BrokenPipeError:
            pass  # the caller has died; the run goes on
        os.close(tell)

    try:
        machine.become_reaper()
        body(answer)
    except BaseException:  # noqa: BLE001 - the last stop of a process nobody sees: say what happened
        import traceback  # noqa: PLC0415 - loads much, and is needed by bugs only

        log(traceback.format_exc())
        if not answered:
            answer({"ok": False, "problem": traceback.format_exc(limit=1).strip().splitlines()[-1]})
        raise SystemExit(70)


def _quiet(run: RunFolder) -> None:
    """No terminal, no pipe of the caller, no working folder that could be in somebody's way."""
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        errors = os.open(run.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        errors = nothing
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.dup2(errors, 2)


VERBS = {"start": start, "adopt": adopt, "cancel": cancel, "launch": start_launcher, "build": build}
