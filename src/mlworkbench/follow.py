"""New bytes of a run → history and screen. Resumable: everything is read from an offset."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from .errors import HostError
from .history.store import History
from .hosts.host import News
from .model import IN_CONTACT, Run, Status
from .remote import endings
from .targets.target import Target

CHUNK = 4 * 1024 * 1024
QUICK, SLOW = 0.004, 0.1  # seconds between looks, in the first second of silence and later
CARE = 1.0  # seconds between attempts to put a new supervisor to work
INTERRUPTED = "interrupted"  # recorded, but the submit died before anybody took the run on


class Follower:
    """One run, as it goes on. ``run`` is always what the history knows."""

    def __init__(self, history: History, run: Run, target: Target, offset: int = 0) -> None:
        self.history = history
        self.run, self._reading = history.known(run.id)
        self.target = target
        self.offset = offset  # in the log
        self._cared = -CARE

    def refresh(self) -> Run:
        """See how the run stands. One that nobody watches gets a new supervisor, which finds out."""
        if not self.run.status.final:
            self._guarded(lambda: self._pull({}))
        return self.run

    def chunks(self, live: bool = True) -> Iterator[bytes]:
        """The log's bytes from the offset on: until the run has ended, or else (not live) to the present end.

        Also ends at a run whose submit was interrupted: nothing will come unless somebody resumes it.
        """
        quiet_since = time.monotonic()
        while True:
            final = self.run.status.final
            data = self._guarded(lambda: self._pull({"log": self.offset}))
            if data:
                self.offset += len(data)
                quiet_since = time.monotonic()
                yield data
            elif final or not live or self.run.detail == INTERRUPTED:
                return
            else:
                time.sleep(QUICK if time.monotonic() - quiet_since < 1.0 else SLOW)

    def _pull(self, log: dict[str, int]) -> News:
        """Ask for everything that is new; the history takes in all but the log."""
        while not self.run.status.final:
            news = self.target.news(self.run.id, {**self._reading.offsets, **log}, CHUNK)
            before = self._reading
            self._take_in(news)
            if self._reading == before or news.parts.get("log"):
                if not news.supervised and not news.parts.get("log") and not self.run.status.final:
                    self._look_after(news)
                return news
        return self.target.news(self.run.id, log, CHUNK)

    def _take_in(self, news: News) -> None:
        parts = {name: data for name, data in news.parts.items() if data and name != "log"}
        if any(len(data) == CHUNK for name, data in parts.items() if name != "events.jsonl"):
            parts.pop("events.jsonl", None)  # the end is told after all that was measured
        if parts:
            self.run, self._reading = self.history.append(self.run.id, self._reading, parts)
        if self.run.contact != IN_CONTACT:
            self.run = self.history.note(self.run.id, lambda run: replace(run, contact=IN_CONTACT))

    def _guarded(self, pull: Callable[[], News]) -> bytes:
        """Lost contact is noted, and changes nothing else about the run."""
        try:
            news = pull()
        except HostError as error:
            self._note_contact(error)
            return b""
        return news.parts.get("log", b"")

    def _note_contact(self, error: HostError) -> None:
        if not self.run.contact.startswith("no contact"):
            words = f"no contact since {time.strftime('%Y-%m-%d %H:%M:%S')} ({error.message})"
            self.run = self.history.note(self.run.id, lambda run: replace(run, contact=words))

    def _look_after(self, news: News) -> None:
        """Nobody watches the run: find out why, and put a supervisor to work if there is something to watch."""
        if not news.claimed and (news.exists or self.run.accepted is None):
            detail = None if self.history.submitter_lives(self.run.id) else INTERRUPTED
            if detail != self.run.detail:
                self.run = self.history.note(self.run.id, lambda run: _interrupted(run, detail))
            return
        if time.monotonic() - self._cared < CARE:
            return
        self._cared = time.monotonic()
        state, heartbeat = self.target.adopt(self.run.id)
        if state == "lost":
            self.run = self.history.note(self.run.id, _lost)
        elif state == "elsewhere":
            words = "started on another machine, and only that one can tell"
            if heartbeat is not None:
                words += f"; last sign of life {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(heartbeat))}"
            self.run = self.history.note(self.run.id, lambda run: replace(run, contact=words))
        else:
            self._take_in(self.target.news(self.run.id, self._reading.offsets, CHUNK))


def _interrupted(run: Run, detail: str | None) -> Run:
    """Unless a supervisor has taken it on since we looked."""
    return run if run.accepted or run.status.final else replace(run, detail=detail)


def forget(run: Run) -> Run:
    """On the user's word: the machine that could tell is gone for good."""
    return replace(_lost(run), cause="given up by the user: the machine that ran it is gone", contact=IN_CONTACT)


def _lost(run: Run) -> Run:
    return (
        run
        if run.status.final
        else replace(
            run,
            status=Status.FAILED,
            detail=None,
            ending=endings.TARGET_LOST,
            cause="the run's folder is gone",
            ended=time.time(),
        )
    )
