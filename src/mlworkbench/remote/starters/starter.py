"""What a starter is: a module with ``start``, ``status`` and ``cancel``, chosen by the name in a run's spec.

A starter decides where the supervisor of a run gets to run: a process beside the agent, or a job of a scheduler. The
supervisor does not care. Where an environment is built can be chosen, too: a starter may call ``prepare_environment``
(``environments/step.py``) before it starts the supervisor, which then finds the environment ready.
"""

from __future__ import annotations

import os

from ..journal import log
from ..shared.files import read_json, write_whole
from ..shared.layout import Root, RunFolder
from ..shared.starter_names import DETACHED, ENDED, PLUGIN, UNKNOWN
from . import detached

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Protocol, TypedDict

    from ..run_spec import Spec
    from ..supervision import Supervision

    Handle = Dict[str, Any]  # what a starter must remember of a run; "folder" is always the run folder

    class Standing(TypedDict, total=False):
        """What a scheduler reports about a run. ``state`` is always there."""

        state: str  # queued, running, ended, or unknown
        reason: str  # why it is queued, how it ended, or why nothing is known
        position: int  # in the queue
        estimated_start: float  # seconds since 1970
        nodes: List[str]

    class Starter(Protocol):
        """Each call may raise anything; what it raises is the reason that is reported."""

        def start(self, run: RunFolder, spec: Spec, secrets: Dict[str, str], supervision: Supervision) -> Handle:
            """Leave a supervisor behind. The handle is stored in the run folder."""

        def status(self, handles: Dict[str, Handle]) -> Dict[str, Standing]:
            """How many runs stand, in one call: run ID → handle becomes run ID → standing."""

        def cancel(self, handle: Handle, grace: Optional[float]) -> Optional[bool]:
            """Ask for the end of a run whose ``cancel.json`` is written. True: it needs a new supervisor."""


def name_of(spec: Spec) -> str:
    """The starter of a run. A sweep's conductor runs beside the agent; the starter is for its children."""
    return DETACHED if spec.get("sweep") else spec.get("starter") or DETACHED


def starter_of(name: str) -> Starter:
    """A starter by its name; raises ValueError if there is none."""
    if name == DETACHED:
        return detached
    plugin = name[len(PLUGIN) :]
    if not name.startswith(PLUGIN) or not plugin.isidentifier():
        raise ValueError("invalid starter %a" % name[:80])
    try:
        module: Any = __import__("%s.plugins.%s" % (__package__, plugin), fromlist=["start"])
    except ImportError as error:
        raise ValueError("starter %s cannot be loaded: %s" % (name, error)) from None
    return module  # type: ignore[no-any-return]


def start(supervision: Supervision) -> Dict[str, Any]:
    """Start a run by the starter of its spec; the answer to the client. A scheduler gets a run once."""
    run, spec, secrets = supervision.run, supervision.spec, supervision.secrets
    # A run that was cancelled before it started needs no scheduler: only its ending is to be recorded.
    name = DETACHED if os.path.exists(run.cancel) else name_of(spec)
    if name == DETACHED:
        return starter_of(name).start(run, spec, secrets, supervision)
    if os.path.exists(run.owner):
        return {"ok": True, "claimed": False, "owner": read_json(run.owner)}
    standing = standing_of(run)
    if standing is None or standing["state"] == ENDED:
        try:
            handle = starter_of(name).start(run, spec, secrets, supervision)
        except Exception as error:  # noqa: BLE001 - a starter calls programs of a scheduler, and may be a plugin's
            return {"ok": False, "problem": "starter %s failed: %s" % (name, _words(error))}
        write_whole(run.handle, {"starter": name, "handle": handle})
    return {"ok": True, "claimed": True}


def handle_of(run: RunFolder) -> Optional[Dict[str, Any]]:
    """Starter and handle of a run that was given to a scheduler; None: it was not."""
    return read_json(run.handle, "starter", "handle")


def standing_of(run: RunFolder) -> Optional[Standing]:
    """What the scheduler reports about a run; None: no scheduler has it, and its lock says whether it is supervised."""
    known = handle_of(run)
    return None if known is None else _ask(str(known["starter"]), {run.path: run})[run.path]


def statuses(root: Root, names: List[str]) -> Dict[str, Standing]:
    """How runs stand, each starter asked once."""
    groups: Dict[str, Dict[str, RunFolder]] = {}
    for name in names:
        run = root.run(name)
        groups.setdefault(str((handle_of(run) or {}).get("starter", DETACHED)), {})[name] = run
    found: Dict[str, Standing] = {}
    for starter, runs in groups.items():
        found.update(_ask(starter, runs))
    return found


def _ask(starter: str, runs: Dict[str, RunFolder]) -> Dict[str, Standing]:
    """A scheduler that does not respond is no evidence about any run."""
    unknown: Dict[str, Standing] = {name: {"state": UNKNOWN} for name in runs}
    try:
        found = starter_of(starter).status({name: _full_handle(run) for name, run in runs.items()})
        return {name: found.get(name) or unknown[name] for name in runs}
    except Exception as error:  # noqa: BLE001 - as above
        return {name: {"state": UNKNOWN, "reason": _words(error)} for name in runs}


def cancel(run: RunFolder, grace: Optional[float]) -> bool:
    """Tell the starter that the end of a run was asked for. True: the run needs a new supervisor."""
    name = str((handle_of(run) or {}).get("starter", DETACHED))
    try:
        return bool(starter_of(name).cancel(_full_handle(run), grace))
    except Exception as error:  # noqa: BLE001 - as above; the supervisor reads the cancel from the run folder
        log("starter %s cannot cancel the run: %s" % (name, _words(error)))
        return False


def _full_handle(run: RunFolder) -> Handle:
    return dict((handle_of(run) or {}).get("handle") or {}, folder=run.path)


def _words(error: Exception) -> str:
    return "%s: %s" % (type(error).__name__, error)
