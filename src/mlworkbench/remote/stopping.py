"""Cancel and time limit: TERM, grace, KILL of all that the run is."""

from __future__ import annotations

import math
import os
import time

from .journal import Journal, log, spare_room
from .shared.failpoint import failpoint
from .shared.files import read_json, write_whole
from .shared.layout import RunFolder

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from .run_spec import Spec
    from .work import Work

    Facts = Optional[Dict[str, Any]]

STUCK = 60.0  # seconds after KILL before we say that a process will not die


class Stopping:
    """Whether and why the run is being stopped. ``work`` is what there is to stop."""

    def __init__(self, run: RunFolder, spec: Spec, journal: Journal, work: Work) -> None:
        self.why: Optional[str] = None
        self.forced = False
        self._run = run
        self._spec = spec
        self._journal = journal
        self._work = work
        self._begun = 0.0
        self._first: Optional[float] = None  # when the first signal was sent, by whichever supervisor
        self._deadline: Optional[float] = None
        self._killed: Optional[float] = None
        self._told_stuck = False

    def recall(self) -> None:
        """A predecessor may already have sent a signal: then the end is ours, whoever tells it."""
        noted = read_json(self._run.stopping, "why", "forced")
        if noted:
            self.why, self.forced = noted["why"], bool(noted["forced"])
            self._first = noted.get("clock")

    def reason(self, facts: Facts, ended: Dict[str, Any]) -> Optional[str]:
        """Why we stopped the run; None if it had ended by itself before, and only the note of that came late."""
        elapsed = ended.get("elapsed")
        if facts and isinstance(elapsed, (int, float)) and isinstance(self._first, (int, float)):
            return None if facts["clock"] + elapsed < self._first else self.why
        return self.why

    def look(self, facts: Facts) -> None:
        """Called often while the run goes on."""
        if self._deadline is None:
            self._begin_if_asked(facts)
            return
        if self.why == "cancel":  # asked again with less patience
            self._deadline = min(self._deadline, self._begun + self._grace())
        if time.monotonic() >= self._deadline:
            self._kill(facts)

    def _asked(self, facts: Facts) -> Optional[str]:
        """Why the run has to stop now; None: it need not."""
        if os.path.exists(self._run.cancel):
            return "cancel"
        limit = self._spec.get("timeout")
        late = limit is not None and facts is not None and time.monotonic() - facts["clock"] >= limit
        return "timeout" if late else None

    def _begin_if_asked(self, facts: Facts) -> None:
        why = self._asked(facts)
        if why is not None:
            self._begin(why, self._grace() if why == "cancel" else self._spec["grace"], facts)

    def _grace(self) -> float:
        asked = (read_json(self._run.cancel) or {}).get("grace")
        if isinstance(asked, (int, float)) and math.isfinite(asked):
            return float(asked)
        return float(self._spec["grace"])

    def _begin(self, why: str, grace: float, facts: Facts) -> None:
        self.why = self.why or why
        self._first = self._first or time.monotonic()
        self._note()
        self._journal.add("stopping", {"why": self.why, "grace": grace})
        self._begun = time.monotonic()
        self._deadline = self._begun + grace
        self._work.terminate(facts)
        failpoint("terminated")

    def _note(self) -> None:
        """Before a signal is sent, so that a successor knows whose doing the end is. The signal must be sent anyway."""
        try:
            note = {"why": self.why, "forced": self.forced, "clock": self._first}
            spare_room(self._run, lambda: write_whole(self._run.stopping, note))
        except OSError as error:
            log("cannot record that the run is being stopped: %s" % error)

    def _kill(self, facts: Facts) -> None:
        if not self.forced:
            self.forced = True
            self._note()
        self._killed = self._killed or time.monotonic()
        self._work.kill(facts)
        if time.monotonic() - self._killed > STUCK and not self._told_stuck:
            self._told_stuck = True
            self._journal.add("stopping", {"why": self.why, "stuck": [pid for pid, _ in self._work.living(facts)]})

    def sweep(self, facts: Facts) -> None:
        """The main process has ended on our word: what it left behind gets the rest of the grace, then KILL."""
        if self._deadline is None:
            return
        while self._work.living(facts):
            if time.monotonic() >= self._deadline:
                self._kill(facts)
                if self._told_stuck:
                    return
            time.sleep(0.05)
