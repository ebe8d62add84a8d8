"""The interface of starters: modules with ``start``, ``status``, and ``cancel``.

The spec of a run names its starter. A starter decides where the supervisor of a run executes: in a
process on the agent's machine, or in a scheduler job. The supervisor is the same in both cases. A starter
may also choose where an environment is built: it may call ``prepare_environment``
(``environments/environment_step.py``) before it starts the supervisor.
"""

from __future__ import annotations

import os

from ..journal import log
from ..shared.atomic_files import read_json, write_atomic
from ..shared.failure import Failed, failure_answer
from ..shared.layout import Root, RunFolder
from ..shared.starter_names import DETACHED, ENDED, PLUGIN, SLURM, UNKNOWN
from . import detached

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Protocol, TypedDict

    from ..run_spec import Spec
    from ..supervision import Supervision

    Handle = Dict[str, Any]  # data that a starter stores about a run; "folder" is always the run folder

    class JobStatus(TypedDict, total=False):
        """A scheduler's report about a run. ``state`` is always present."""

        state: str  # queued, running, ended, or unknown
        job: str  # the scheduler's ID of the job
        reason: str  # why the job is queued, how it ended, or why its state is unknown
        hint: str  # what to do about a job that does not start by itself
        position: int  # position in the queue
        estimated_start: float  # Unix timestamp
        nodes: List[str]
        as_of: float  # Unix timestamp of the last answer, if the scheduler does not respond
        ending: str  # one of run_endings.ALL: how the run ended if its supervisor recorded nothing

    class Starter(Protocol):
        """A starter. Its methods may raise any exception; the caller reports or logs it."""

        def start(self, run: RunFolder, spec: Spec, secrets: Dict[str, str], supervision: Supervision) -> Handle:
            """Start a supervisor. Return the handle, which is stored in the run folder."""

        def status(self, handles: Dict[str, Handle]) -> Dict[str, JobStatus]:
            """Return the status of several runs in one call. Both mappings have run IDs as keys."""

        def cancel(self, handle: Handle, grace: Optional[float]) -> Optional[bool]:
            """Request the end of a run whose ``cancel.json`` exists.

            Return True if the run needs a new supervisor.
            """


def starter_name(spec: Spec) -> str:
    """Return the name of a run's starter.

    The conductor of a sweep always runs on the agent's machine; the starter in its spec is for its children.
    """
    return DETACHED if spec.get("sweep") else spec.get("starter") or DETACHED


def load_starter(name: str) -> Starter:
    """Return the starter with this name. Raise ValueError if there is none."""
    if name == DETACHED:
        return detached
    if name == SLURM:
        from . import slurm  # noqa: PLC0415 - other runs do not need it

        return slurm
    plugin = name[len(PLUGIN) :]
    if not name.startswith(PLUGIN) or not plugin.isidentifier():
        raise ValueError("invalid starter %a" % name[:80])
    try:
        module: Any = __import__("%s.plugins.%s" % (__package__, plugin), fromlist=["start"])
    except ImportError as error:
        raise ValueError("starter %s cannot be loaded: %s" % (name, error)) from None
    return module  # type: ignore[no-any-return]


def start(supervision: Supervision) -> Dict[str, Any]:
    """Start a run with the starter in its spec, and return the response.

    A run is submitted to a scheduler again only if its previous job has ended.
    """
    run, spec, secrets = supervision.run, supervision.spec, supervision.secrets
    # A run that was canceled before it started needs no scheduler: only its ending must be recorded.
    name = DETACHED if os.path.exists(run.cancel) else starter_name(spec)
    if name == DETACHED:
        return load_starter(name).start(run, spec, secrets, supervision)
    if os.path.exists(run.owner):
        return {"ok": True, "claimed": False, "owner": read_json(run.owner)}
    job = read_status(run)
    if job is None or job["state"] == ENDED:
        try:
            handle = load_starter(name).start(run, spec, secrets, supervision)
        except Failed as error:
            return failure_answer(error.failure)
        except Exception as error:  # noqa: BLE001 - a starter runs scheduler programs, and may be a plugin
            return {"ok": False, "problem": "starter %s failed: %s" % (name, _format_error(error))}
        write_atomic(run.handle, {"starter": name, "handle": handle})
    return {"ok": True, "claimed": True}


def supervise(supervision: Supervision, respond: Callable[[Dict[str, Any]], None]) -> None:
    """Supervise the run in a process that a scheduler has started."""
    if starter_name(supervision.spec) != SLURM:  # a plugin is not loaded here: it may import large modules
        supervision.work(respond)
        return
    from .slurm import supervise as supervise_job  # noqa: PLC0415 - other runs do not need it

    supervise_job(supervision, respond)


def read_handle(run: RunFolder) -> Optional[Dict[str, Any]]:
    """Return the starter and handle of a run that was submitted to a scheduler, or None."""
    return read_json(run.handle, "starter", "handle")


def read_status(run: RunFolder) -> Optional[JobStatus]:
    """Return the scheduler's status of a run, or None if it was not submitted to a scheduler.

    Without a scheduler, the lock of the run shows whether its supervisor is alive.
    """
    record = read_handle(run)
    if record is None:
        return None
    return _query_starter(str(record["starter"]), {run.path: _full_handle(run, record)})[run.path]


def read_statuses(root: Root, names: List[str]) -> Dict[str, JobStatus]:
    """Return the status of each run, with one call per starter."""
    groups: Dict[str, Dict[str, Handle]] = {}
    for name in names:
        run = root.run(name)
        record = read_handle(run) or {}
        groups.setdefault(str(record.get("starter", DETACHED)), {})[name] = _full_handle(run, record)
    result: Dict[str, JobStatus] = {}
    for starter, handles in groups.items():
        result.update(_query_starter(starter, handles))
    return result


def _query_starter(starter: str, handles: Dict[str, Handle]) -> Dict[str, JobStatus]:
    """Query a starter. If it does not respond, the state of each run is unknown."""
    unknown: Dict[str, JobStatus] = {name: {"state": UNKNOWN} for name in handles}
    try:
        reported = load_starter(starter).status(handles)
        return {name: reported.get(name) or unknown[name] for name in handles}
    except Exception as error:  # noqa: BLE001 - as above
        return {name: {"state": UNKNOWN, "reason": _format_error(error)} for name in handles}


def cancel(run: RunFolder, grace: Optional[float]) -> bool:
    """Forward a cancel to the starter. Return whether the run needs a new supervisor."""
    record = read_handle(run) or {}
    name = str(record.get("starter", DETACHED))
    try:
        return bool(load_starter(name).cancel(_full_handle(run, record), grace))
    except Exception as error:  # noqa: BLE001 - as above; the supervisor reads the cancel from the run folder
        log("starter %s cannot cancel the run: %s" % (name, _format_error(error)))
        return False


def _full_handle(run: RunFolder, record: Dict[str, Any]) -> Handle:
    return dict(record.get("handle") or {}, folder=run.path)


def _format_error(error: Exception) -> str:
    return "%s: %s" % (type(error).__name__, error)
