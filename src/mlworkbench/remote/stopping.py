"""Stop a run after a cancel or timeout: SIGTERM, grace period, and SIGKILL for all its processes."""

from __future__ import annotations

import math
import os
import time

from .allocation import current
from .journal import Journal, log, write_with_reserve
from .shared.atomic_files import read_json, write_atomic
from .shared.failpoint import failpoint
from .shared.layout import RunFolder

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from .run_spec import Spec
    from .work import Work

    Facts = Optional[Dict[str, Any]]

STUCK = 60.0  # seconds after SIGKILL before a process is reported as stuck


class Stopping:
    """The state of a stop request: whether and why ``work`` is being stopped."""

    def __init__(self, run: RunFolder, spec: Spec, journal: Journal, work: Work) -> None:
        self.why: Optional[str] = None
        self.forced = False
        self._run = run
        self._spec = spec
        self._journal = journal
        self._work = work
        self._begun_at = 0.0
        self._first_signal: Optional[float] = None  # time of the first signal from any supervisor
        self._deadline: Optional[float] = None
        self._killed_at: Optional[float] = None
        self._stuck_reported = False

    def restore(self) -> None:
        """Restore the state of a previous supervisor that has already sent a signal."""
        marker = read_json(self._run.stopping, "why", "forced")
        if marker:
            self.why, self.forced = marker["why"], bool(marker["forced"])
            self._first_signal = marker.get("clock")

    def reason(self, facts: Facts, result: Dict[str, Any]) -> Optional[str]:
        """Return why the run was stopped, or None if it had ended by itself before the first signal."""
        elapsed = result.get("elapsed")
        if facts and isinstance(elapsed, (int, float)) and isinstance(self._first_signal, (int, float)):
            return None if facts["clock"] + elapsed < self._first_signal else self.why
        return self.why

    def check(self, facts: Facts) -> None:
        """Check for a cancel or timeout. Called often during the run."""
        if self._deadline is None:
            self._begin_if_requested(facts)
            return
        if self.why == "cancel":  # a second cancel may have a shorter grace period
            self._deadline = min(self._deadline, self._begun_at + self._grace())
        if time.monotonic() >= self._deadline:
            self._kill(facts)

    def _stop_reason(self, facts: Facts) -> Optional[str]:
        """Return why the run must stop now, or None."""
        if os.path.exists(self._run.cancel):
            return "cancel"
        limit = self._spec.get("timeout")
        is_late = limit is not None and facts is not None and time.monotonic() - facts["clock"] >= limit
        return "timeout" if is_late else current().stop_reason()

    def _begin_if_requested(self, facts: Facts) -> None:
        why = self._stop_reason(facts)
        if why is not None:
            self._begin(why, self._grace() if why == "cancel" else self._spec["grace"], facts)

    def _grace(self) -> float:
        requested = (read_json(self._run.cancel) or {}).get("grace")
        if isinstance(requested, (int, float)) and math.isfinite(requested):
            return float(requested)
        return float(self._spec["grace"])

    def _begin(self, why: str, grace: float, facts: Facts) -> None:
        self.why = self.why or why
        self._first_signal = self._first_signal or time.monotonic()
        self._write_marker()
        self._journal.add("stopping", {"why": self.why, "grace": grace})
        self._begun_at = time.monotonic()
        self._deadline = self._begun_at + grace
        self._work.terminate(facts)
        failpoint("terminated")

    def _write_marker(self) -> None:
        """Record the stop for a successor before a signal is sent.

        The signal is sent even if this fails.
        """
        try:
            marker = {"why": self.why, "forced": self.forced, "clock": self._first_signal}
            write_with_reserve(self._run, lambda: write_atomic(self._run.stopping, marker))
        except OSError as error:
            log("cannot record that the run is being stopped: %s" % error)

    def _kill(self, facts: Facts) -> None:
        if not self.forced:
            self.forced = True
            self._write_marker()
        self._killed_at = self._killed_at or time.monotonic()
        self._work.kill(facts)
        if time.monotonic() - self._killed_at > STUCK and not self._stuck_reported:
            self._stuck_reported = True
            self._journal.add(
                "stopping", {"why": self.why, "stuck": [pid for pid, _ in self._work.living_processes(facts)]}
            )

    def end_leftovers(self, facts: Facts, grace: Optional[float] = None) -> None:
        """End processes that outlived the main process.

        They get the rest of the grace period, then SIGKILL. If the run is not being stopped, ``grace`` is
        the time for processes that must not outlive it; None: they may.
        """
        if self._deadline is None:
            if grace is None:
                return
            self._deadline = time.monotonic() + grace
            self._work.terminate(facts)
        while self._work.living_processes(facts):
            if time.monotonic() >= self._deadline:
                self._kill(facts)
                if self._stuck_reported:
                    return
            time.sleep(0.05)

    def end_all(self, facts: Facts) -> bool:
        """End all processes that an attempt left behind. Return whether none is alive."""
        self._work.terminate(facts)
        self._begun_at = time.monotonic()
        self._deadline = self._begun_at + self._spec["grace"]
        self.end_leftovers(facts)
        return not self._work.living_processes(facts)
