"""Keeps what the pages show fresh: how runs stand, and the logs and outputs of those that run elsewhere.

Only while somebody looks on. What has ended elsewhere is brought home, as ``mlw logs -f`` would.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ..errors import MlwError
from ..fetch import bring_outputs
from ..follow import Follower
from ..history.store import History
from ..model import Run
from ..paths import UserPaths
from ..refresh import refresh
from ..remote.shared.layout import is_outside
from ..targets.opening import open_target

_PAUSE = 1.0  # seconds between looks
_PATIENCE = 4.0  # seconds for machines elsewhere to answer
_ATTENTION = 15.0  # seconds after which nobody looks on any more
_MOST = 16  # runs that are followed at once

log = logging.getLogger("mlworkbench.ui")


class Live:
    """One thread looks at all unfinished runs; each run that somebody looks at has a thread that follows it."""

    def __init__(self, paths: UserPaths) -> None:
        self._paths = paths
        self._looked = 0.0
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._followed: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()
        self._going: frozenset[str] = frozenset()
        self._wanted: dict[str, float] = {}  # runs that somebody looks at, and when that was last said
        self.version = 0  # grows whenever some run's standing has changed
        self._seen: dict[str, object] = {}

    def start(self) -> None:
        threading.Thread(target=self._guard, args=(self._look_on,), name="mlw-live", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()

    def attend(self, run_id: str | None = None) -> None:
        """Somebody looks on, maybe at this run; to be said again every few seconds."""
        self._looked = time.monotonic()
        if run_id is not None:
            self._wanted[run_id] = self._looked
        self._wake.set()

    def follow(self, run: Run) -> None:
        """Bring log, metrics and outputs of a run home as they come; harmless if that is done already."""
        if is_outside(run.spec.folder):
            return
        name = run.spec.folder
        self._wanted[name] = time.monotonic()
        with self._lock:
            self._followed = {known: one for known, one in self._followed.items() if one.is_alive()}
            if name in self._followed or len(self._followed) >= _MOST:
                return
            thread = threading.Thread(target=self._guard, args=(lambda: self._bring(name),), daemon=True)
            self._followed[name] = thread
            thread.start()

    # -- the threads -----------------------------------------------------------------------------------------

    def _guard(self, work: Callable[[], None]) -> None:
        """A thread that dies of an error would leave the pages stale without a word."""
        while not self._stop.is_set():
            try:
                work()
                return
            except MlwError as error:
                log.warning("%s", error.message)
            except Exception:
                log.exception("background refresh failed; retrying")
            if work != self._look_on:
                return
            self._stop.wait(_PAUSE)

    def _look_on(self) -> None:
        history = History(self._paths)
        try:
            while not self._stop.is_set():
                if time.monotonic() - self._looked > _ATTENTION:
                    self._wake.clear()
                    self._wake.wait()
                    continue
                self._look(history)
                self._stop.wait(_PAUSE)
        finally:
            history.close()

    def _look(self, history: History) -> None:
        runs = refresh(history, history.unfinished(), _PATIENCE, lambda words: log.warning("%s", words))
        since = time.monotonic() - _ATTENTION
        self._wanted = {name: at for name, at in list(self._wanted.items()) if at > since}
        for run in runs:
            ended = run.status.final and run.spec.compute.address  # its log and its outputs are still over there
            if ended or run.id in self._wanted:
                self.follow(run)
        now = {run.id: (run.status, run.detail, run.contact, run.metrics, run.gpu) for run in runs}
        going = frozenset(run.id for run in runs if not run.status.final)
        if now != self._seen or going != self._going:
            self._seen, self._going = dict(now), going
            self.version += 1

    def _bring(self, name: str) -> None:
        history = History(self._paths)
        try:
            run = history.known(name)[0]
            target = open_target(run.spec.compute, self._paths)
            follower = Follower(history, run, target, leave=self._is_done_with, lively=True)
            for _ in follower.chunks():
                pass
            if target.host.distant and follower.run.status.final:
                bring_outputs(follower.run, target.host, self._paths.root.run(name), lambda done, total: None)
            self.version += 1
            target.host.close()
        finally:
            history.close()

    def _is_done_with(self, run: Run) -> bool:
        """Whether to stop following it: the server stops, or nobody looks at an unfinished run."""
        wanted = time.monotonic() - self._wanted.get(run.id, 0.0) < _ATTENTION
        return self._stop.is_set() or not (run.status.final or wanted)
