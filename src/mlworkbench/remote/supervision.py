"""A supervisor from its start to the end of its run: lock, claim, supervise. A starter starts the process."""

from __future__ import annotations

import json
import os
import sys
import time

from .claim import claim, has_claim
from .resources.resource import join_queues
from .run_lock import hold
from .shared import machine
from .shared.failpoint import failpoint
from .shared.files import read_json
from .shared.layout import Root, RunFolder
from .shared.versions import PROTOCOL
from .supervisor import Supervisor

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional

    from .run_spec import Spec
    from .sweep import Conductor, Verb

    Answer = Dict[str, Any]

_MAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")


class Supervision:
    """The supervisor that one run is to get.

    A starter forks a process that calls ``work``, or has ``command`` started with ``message`` as its standard input,
    anywhere where the run folder and this Python are at the same paths. However often that happens, one wins the claim.
    """

    def __init__(
        self,
        root: Root,
        run: RunFolder,
        spec: Spec,
        nonce: str,
        secrets: Dict[str, str],
        umask: int,
        verbs: Mapping[str, Verb],
    ) -> None:
        self.root = root
        self.run = run
        self.spec = spec
        self.nonce = nonce
        self.secrets = secrets
        self._umask = umask
        self._verbs = verbs  # for runs of a sweep

    @property
    def command(self) -> List[str]:
        """Starts the supervisor as a process that lasts as long as the run. It prints one line of JSON."""
        # The mark must be in the environment from the process's beginning: that is where others look for it.
        words = ["env", "MLW_SUPERVISOR=1"] if machine.FORKS else []
        words += [sys.executable, "-I", "-S", _MAIN, "supervise"]
        return [*words, self.root.path, os.path.basename(self.run.path), self.nonce]

    @property
    def message(self) -> bytes:
        """What ``command`` reads from its standard input. It contains the secrets."""
        return json.dumps({"secrets": self.secrets}).encode("ascii")

    def work(self, tell: Callable[[Answer], None]) -> None:
        """Claim the run, answer, and supervise it to its end."""
        root, run, spec = self.root, self.run, self.spec
        held = _lock_patiently(run)
        if held is None or not claim(run, self.nonce):
            # Asked for again, because the answer to the first time was lost: that it was us is what counts.
            tell({"ok": True, "claimed": has_claim(run, self.nonce), "owner": read_json(run.owner)})
            return
        failpoint("claimed")
        conductor = conductor_of(root, run, spec, self.secrets, self._verbs)
        if conductor is None:
            join_queues(root, spec)
        tell({"ok": True, "claimed": True, "protocol": PROTOCOL, "pid": os.getpid()})
        if conductor is not None:
            conductor.begin()
            return
        Supervisor(root, run, spec).begin(self.secrets, self._umask)
        pass_on(root, spec, {"secrets": self.secrets}, self._verbs["adopt"])


def conductor_of(
    root: Root, run: RunFolder, spec: Spec, secrets: Optional[Dict[str, str]], verbs: Mapping[str, Verb]
) -> Optional[Conductor]:
    """Of a sweep; other runs have a supervisor."""
    if not spec.get("sweep"):
        return None
    from .sweep import Conductor  # noqa: PLC0415 - other runs do without

    return Conductor(root, run, spec, secrets, verbs)


def pass_on(root: Root, spec: Spec, message: Answer, adopt: Verb) -> None:
    """A run of a sweep has ended: should its conductor have died, here is a new one."""
    parent = root.run(str(spec.get("parent")))
    if spec.get("parent") and os.path.exists(parent.owner) and not machine.is_locked(parent.lock):
        adopt(root, parent, [], message)


def _lock_patiently(run: RunFolder) -> Optional[int]:
    """Somebody who merely looks holds the lock for a moment; only a claim says that the run is taken."""
    for _ in range(20):
        held = hold(run.lock)
        if held is not None or os.path.exists(run.owner):
            return held
        time.sleep(0.01)
    return None
