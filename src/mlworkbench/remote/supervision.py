"""The lifecycle of a supervisor: lock, claim, and supervise. A starter starts its process."""

from __future__ import annotations

import json
import os
import sys
import time

from .attempts import supervise_attempts
from .claim import claim, has_claim
from .resources.resource import join_queues
from .run_lock import acquire_lock
from .shared import machine
from .shared.atomic_files import read_json
from .shared.failpoint import failpoint
from .shared.layout import Root, RunFolder
from .shared.protocol_versions import PROTOCOL
from .supervisor import Supervisor

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional

    from .run_spec import Spec
    from .sweep_conductor import RunCommand, SweepConductor

    Message = Dict[str, Any]

_MAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")


class Supervision:
    """The supervisor to start for one run.

    A starter forks a process that calls ``work``, or runs ``command`` with ``message`` as its standard
    input. The run folder and this Python interpreter must have the same paths where that process runs.
    If several processes are started, only one can claim the run.
    """

    def __init__(
        self,
        root: Root,
        run: RunFolder,
        spec: Spec,
        nonce: str,
        secrets: Dict[str, str],
        umask: int,
        commands: Mapping[str, RunCommand],
    ) -> None:
        self.root = root
        self.run = run
        self.spec = spec
        self.nonce = nonce
        self.secrets = secrets
        self.umask = umask
        self._commands = commands  # for the children of a sweep

    @property
    def command(self) -> List[str]:
        """Command that starts the supervisor and prints one line of JSON.

        Its process lasts as long as the run.
        """
        # The variable must be in the initial environment of the process, where other processes look for it.
        arguments = ["env", "MLW_SUPERVISOR=1"] if machine.CAN_FORK else []
        arguments += [sys.executable, "-I", "-S", _MAIN, "supervise"]
        return [*arguments, self.root.path, os.path.basename(self.run.path), self.nonce]

    @property
    def message(self) -> bytes:
        """Standard input for ``command``, which contains the secrets."""
        return json.dumps({"secrets": self.secrets}).encode("ascii")

    def work(self, respond: Callable[[Message], None]) -> None:
        """Claim the run, respond, and supervise the run to its end."""
        root, run, spec = self.root, self.run, self.spec
        lock = _acquire_lock_with_retries(run)
        if lock is None or not claim(run, self.nonce):
            # This may be a retry after a lost response: the claim shows whether the first request succeeded.
            respond({"ok": True, "claimed": has_claim(run, self.nonce), "owner": read_json(run.owner)})
            return
        failpoint("claimed")
        conductor = make_conductor(root, run, spec, self.secrets, self._commands)
        if conductor is None:
            join_queues(root, spec)
        respond({"ok": True, "claimed": True, "protocol": PROTOCOL, "pid": os.getpid()})
        if conductor is not None:
            conductor.begin()
            return
        supervisor = Supervisor(root, run, spec, self.umask)
        supervise_attempts(supervisor, lambda: supervisor.begin(self.secrets))
        ensure_conductor(root, spec, {"secrets": self.secrets}, self._commands["adopt"])


def make_conductor(
    root: Root, run: RunFolder, spec: Spec, secrets: Optional[Dict[str, str]], commands: Mapping[str, RunCommand]
) -> Optional[SweepConductor]:
    """Return the conductor of a sweep, or None for other runs."""
    if not spec.get("sweep"):
        return None
    from .sweep_conductor import SweepConductor  # noqa: PLC0415 - only for sweeps

    return SweepConductor(root, run, spec, secrets, commands)


def ensure_conductor(root: Root, spec: Spec, message: Message, adopt: RunCommand) -> None:
    """If the run is a child of a sweep whose conductor has died, start a new conductor."""
    parent = root.run(str(spec.get("parent")))
    if spec.get("parent") and os.path.exists(parent.owner) and not machine.is_locked(parent.lock):
        adopt(root, parent, [], message)


def _acquire_lock_with_retries(run: RunFolder) -> Optional[int]:
    """Acquire the lock with retries, because a process that checks the lock also holds it briefly.

    The retries end once the run is claimed.
    """
    for _ in range(20):
        lock = acquire_lock(run.lock)
        if lock is not None or os.path.exists(run.owner):
            return lock
        time.sleep(0.01)
    return None
