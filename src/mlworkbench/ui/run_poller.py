"""Background refresh of run states while pages are open.

Logs and metrics of displayed runs are fetched, too. After a remote run has finished, its outputs are
fetched, as with ``mlw logs -f``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ..errors import MlwError
from ..fetch_outputs import download_outputs
from ..follow import Follower
from ..history.store import History
from ..model import Run
from ..paths import UserPaths
from ..refresh_runs import refresh
from ..remote.shared.layout import is_untracked
from ..targets.target_factory import open_target

_INTERVAL = 1.0  # seconds between refreshes
_TIMEOUT = 4.0  # seconds for remote machines to respond
_VIEWER_TIMEOUT = 15.0  # seconds without a heartbeat after which a page counts as closed
_MAX_FOLLOWERS = 16  # maximum runs followed at the same time

log = logging.getLogger("mlworkbench.ui")


class RunPoller:
    """Poller of run states and files.

    One thread refreshes all unfinished runs. Each run that a page shows is followed by its own thread.
    """

    def __init__(self, paths: UserPaths) -> None:
        self._paths = paths
        self._last_heartbeat = 0.0
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._followers: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()
        self._unfinished: frozenset[str] = frozenset()
        self._viewed: dict[str, float] = {}  # time of the last heartbeat for each displayed run
        self.version = 0  # incremented when the state of any run changes
        self._states: dict[str, object] = {}

    def start(self) -> None:
        threading.Thread(target=self._run_guarded, args=(self._refresh_loop,), name="mlw-live", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()

    def heartbeat(self, run_id: str | None = None) -> None:
        """Report that a page is open, and that it shows ``run_id``, if given.

        Pages repeat this every few seconds.
        """
        self._last_heartbeat = time.monotonic()
        if run_id is not None:
            self._viewed[run_id] = self._last_heartbeat
        self._wake.set()

    def follow(self, run: Run) -> None:
        """Start a thread that fetches the log, metrics, and outputs of a run, unless the run is being followed."""
        if is_untracked(run.spec.folder):
            return
        name = run.spec.folder
        self._viewed[name] = time.monotonic()
        with self._lock:
            self._followers = {run: thread for run, thread in self._followers.items() if thread.is_alive()}
            if name in self._followers or len(self._followers) >= _MAX_FOLLOWERS:
                return
            thread = threading.Thread(target=self._run_guarded, args=(lambda: self._follow_run(name),), daemon=True)
            self._followers[name] = thread
            thread.start()

    # -- the threads -----------------------------------------------------------------------------------------

    def _run_guarded(self, work: Callable[[], None]) -> None:
        """Call ``work`` and log errors. Retry only the refresh loop, without which pages would become stale."""
        while not self._stop.is_set():
            try:
                work()
                return
            except MlwError as error:
                log.warning("%s", error.message)
            except Exception:
                log.exception("background refresh failed; retrying")
            if work != self._refresh_loop:
                return
            self._stop.wait(_INTERVAL)

    def _refresh_loop(self) -> None:
        history = History(self._paths)
        try:
            while not self._stop.is_set():
                if time.monotonic() - self._last_heartbeat > _VIEWER_TIMEOUT:
                    self._wake.clear()
                    self._wake.wait()
                    continue
                self._refresh(history)
                self._stop.wait(_INTERVAL)
        finally:
            history.close()

    def _refresh(self, history: History) -> None:
        runs = refresh(history, history.unfinished(), _TIMEOUT, lambda message: log.warning("%s", message))
        since = time.monotonic() - _VIEWER_TIMEOUT
        self._viewed = {name: at for name, at in list(self._viewed.items()) if at > since}
        for run in runs:
            ended = run.status.final and run.spec.compute.address  # its log and outputs are still on the remote machine
            if ended or run.id in self._viewed:
                self.follow(run)
        states = {run.id: (run.status, run.detail, run.contact, run.metrics, run.gpu, run.job) for run in runs}
        unfinished = frozenset(run.id for run in runs if not run.status.final)
        if states != self._states or unfinished != self._unfinished:
            self._states, self._unfinished = dict(states), unfinished
            self.version += 1

    def _follow_run(self, name: str) -> None:
        history = History(self._paths)
        try:
            run = history.load(name)[0]
            target = open_target(run.spec.compute, self._paths)
            follower = Follower(history, run, target, leave=self._should_stop, download_usage=True)
            for _ in follower.chunks():
                pass
            if target.host.is_remote and follower.run.status.final:
                download_outputs(follower.run, target.host, self._paths.root.run(name), lambda done, total: None)
            self.version += 1
            target.host.close()
        finally:
            history.close()

    def _should_stop(self, run: Run) -> bool:
        """Return whether to stop following ``run``.

        This is the case if the server is stopping, or if the run is unfinished and no page shows it.
        """
        is_viewed = time.monotonic() - self._viewed.get(run.id, 0.0) < _VIEWER_TIMEOUT
        return self._stop.is_set() or not (run.status.final or is_viewed)
