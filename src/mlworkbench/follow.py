"""New bytes of a run → history and screen. Resumable: everything is read from an offset."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from .errors import HostError
from .history.folders import make_folder
from .history.reading import before_end
from .history.rows import Reading
from .history.store import History
from .hosts.host import News
from .hosts.stranger import NOT_ATTACHED
from .inferred_state import (
    INTERRUPTED,
    UNWRITTEN,
    in_contact,
    in_sweep,
    interrupted,
    is_unwritten,
    left_out,
    lost,
    out_of_contact,
    wait_for_turn,
)
from .model import IN_CONTACT, Run, Status
from .remote.shared.layout import is_outside
from .run_observer import Observer
from .runfiles.mirror import LOG, MOST_SAMPLES, Mirror
from .targets.target import Target

CHUNK = 4 * 1024 * 1024
QUICK, SLOW, SHARE = 0.004, 0.1, 0.05  # seconds between looks: this share of the silence so far, within bounds
WAIT = 5.0  # seconds that another machine keeps a question for news before it answers "nothing"
FIRST, LONGEST = 0.5, 30.0  # seconds between attempts to get into contact again
SERIES = 5.0  # seconds between two times that new points are put where they are quickly drawn
CARE = 1.0  # seconds between attempts to put a new supervisor to work
BUILD, EVENTS = "build.log", "events.jsonl"
SAMPLES, EFFORT = "gpu.jsonl", "effort.jsonl"


class Follower:
    """One run, as it goes on. ``run`` is always what the history knows.

    ``leave``: whether to stop following this run. ``lively``: download the measurements of a remote run while it runs.
    """

    def __init__(
        self,
        history: History,
        run: Run,
        target: Target,
        *,
        leave: Callable[[Run], bool] = lambda run: False,
        lively: bool = False,
    ) -> None:
        self.history = history
        self.run, self._reading = history.known(run.id)
        self.target = target
        self.offset = 0  # in the log
        self._observer = Observer()
        self._mirror = Mirror(history.paths.root.run(run.id)) if target.host.distant else None
        self._built = 0
        self._cared = -CARE
        self._kept = time.monotonic()  # when the series were last brought up to date
        self._failures = 0
        self._lost = False  # as our user was told
        self._leave = leave
        self._lively = lively
        self._until: float | None = None  # monotonic; following ends then
        self._sampled = 0.0
        self._asked = False  # the machine was asked: to ask it for more takes no long wait
        self._deadline: float | None = None  # monotonic; after it, no further question is asked
        self.overdue = False  # whether the last refresh met its deadline before it had everything
        self._ahead: News | HostError | None = None  # the first answer to a refresh, if it was asked for before

    def refresh(self, deadline: float | None = None) -> Run:
        """Update the state of the run. A run without a supervisor gets a new one.

        Asks once whatever the time is; after ``deadline`` (monotonic) not again, however much is left to read.
        """
        self._deadline, self.overdue = deadline, False
        if is_outside(self.run.id):
            self.run = self.history.get(self.run.id)
        elif not self.run.status.final:
            self._guarded(lambda: self._pull({}))
        return self.run

    def ask_ahead(self) -> tuple[str, Reading, dict[str, bytes]] | None:
        """Ask what ``refresh`` would ask first; what is new, for ``append_all`` and then ``take``.

        None: nothing is new, or no answer came. That is kept for ``refresh``, which does not ask again.
        """
        if self.run.status.final or is_outside(self.run.id):
            return None
        try:
            news = self._ask(dict(self._reading.offsets), 0.0)
        except HostError as error:
            self._ahead = error
            return None
        if new := _new(news):
            return self.run.id, self._reading, new
        self._ahead = news
        return None

    def take(self, run: Run, reading: Reading) -> None:
        """The history has taken in what ``ask_ahead`` returned."""
        self.run, self._reading = run, reading

    def chunks(
        self, live: bool = True, *, observer: Observer | None = None, until: float | None = None
    ) -> Iterator[bytes]:
        """The log's bytes from the offset on: until the run has ended, or else (not live) to the present end.

        Also ends at a run whose submit was interrupted: nothing will come unless somebody resumes it. ``until``
        (monotonic) ends it earlier.
        """
        self._observer, self._until = observer or self._observer, until
        quiet_since = time.monotonic()
        while not is_outside(self.run.id) and not self._leaves():  # of one outside there is no log
            final = self.run.status.final
            data = self._next(live)
            if self._lively and not self._failures and time.monotonic() - self._sampled > SERIES:
                self._sampled = time.monotonic()
                self._bring_samples()
            if data:
                self.offset += len(data)
                quiet_since = time.monotonic()
                yield data
            elif not live or self.run.detail == INTERRUPTED or (final and not self._failures):
                self._bring_samples()
                self._acknowledge()
                return
            else:
                self._pause(quiet_since)

    def _next(self, live: bool) -> bytes:
        """More of the log: from this machine if it is there, else from the target, by way of this machine."""
        if self._mirror is None:
            return self._guarded(lambda: self._pull({LOG: self.offset}))
        data = self._mirror.read_log(self.offset, CHUNK)
        if data or self.log_is_home() or (self._failures and not live):
            return data  # to ask once more somebody who did not answer a moment ago would take long
        home = self._mirror.size()
        came = self._guarded(lambda: self._pull({LOG: home}, self._within(WAIT) if live else 0.0))
        return came if came and home == self.offset else self._mirror.read_log(self.offset, CHUNK)

    def log_is_home(self) -> bool:
        """Whether nothing more can come: then the target need not be asked."""
        if self._mirror is None:
            return True
        return self.run.status.final and self._mirror.size() >= (self.run.log_size or 0)

    def log_was_shortened(self) -> bool:
        """Whether the target has less of the log than came home: somebody truncated it there."""
        if self._mirror is None or not self.run.status.final or self._mirror.size() <= (self.run.log_size or 0):
            return False
        try:
            return not self.target.host.read_file(self.run.id, LOG, self._mirror.size() - 1, 1)
        except HostError:
            return False  # the target cannot be asked now

    def _bring_samples(self) -> None:
        """What a run elsewhere and its GPUs did, second by second. The sum came with the end; this may be had later."""
        if self._mirror is None or not (self.run.status.final or (self._lively and self.run.started)):
            return
        used = bool(self.run.gpu and (self.run.gpu.get("used") or self._lively))
        for name, wanted in ((SAMPLES, used), (EFFORT, self._asked)):
            if wanted and not self._bring_file(self._mirror, name):
                return

    def _acknowledge(self) -> None:
        """Where nothing but the log had to be fetched, the run is all at home now."""
        if self._mirror is None or not self.run.status.final or self.run.outputs or self._failures:
            return
        from .fetch import acknowledge  # noqa: PLC0415 - for runs elsewhere that have ended

        acknowledge(self.run, self.target.host, self.history.paths.root.run(self.run.id))

    def _bring_file(self, mirror: Mirror, name: str) -> bool:
        offset = mirror.size(name)
        try:
            while offset < MOST_SAMPLES:
                data = self.target.host.read_file(self.run.id, name, offset, CHUNK)
                if not data:
                    break
                mirror.write(name, offset, data)
                offset += len(data)
        except HostError:
            return False  # also of a target that knows no such file
        return True

    def _pause(self, quiet_since: float) -> None:
        if self._failures:  # each a little later than the last, and not all followers at the same moment
            chance = 0.5 + os.urandom(1)[0] / 510
            time.sleep(self._within(min(LONGEST, FIRST * 2 ** min(self._failures, 10)) * chance))
        elif self._mirror is None or self.run.status.final or self.run.accepted is None:
            time.sleep(self._within(min(SLOW, max(QUICK, SHARE * (time.monotonic() - quiet_since)))))

    def _leaves(self) -> bool:
        return self._leave(self.run) or (self._until is not None and time.monotonic() >= self._until)

    def _within(self, seconds: float) -> float:
        """Limit a wait to the time that is left to follow the run."""
        return seconds if self._until is None else max(0.0, min(seconds, self._until - time.monotonic()))

    def _pull(self, log: dict[str, int], wait: float = 0.0) -> News:
        """Ask for everything that is new; the history takes in all but the log."""
        while not self.run.status.final:
            news = self._take_ahead() or self._ask({**self._reading.offsets, **log, **self._preparing(log)}, wait)
            before = self._reading
            self._take_in(news)
            if self._reading == before or news.parts.get(LOG):
                if not news.supervised and not news.parts.get(LOG) and not self.run.status.final:
                    self._look_after(news)
                if not self.run.status.final:
                    self._note_unwritten(news.unwritten)
                return news
            if self._deadline is not None and time.monotonic() >= self._deadline:
                self.overdue = not self.run.status.final
                return news
        return self._ask(log, 0.0)

    def _take_ahead(self) -> News | None:
        ahead, self._ahead = self._ahead, None
        if isinstance(ahead, HostError):
            raise ahead
        return ahead

    def _note_unwritten(self, why: str) -> None:
        """The run is over, and its machine cannot write so; or it can again."""
        detail = f"{UNWRITTEN}: {why}" if why else None
        if detail != self.run.detail and (why or is_unwritten(self.run)):
            self.run = self.history.note(
                self.run.id, lambda run: run if run.status.final else replace(run, detail=detail)
            )
            self._observer.state_changed(self.run)

    def _preparing(self, log: dict[str, int]) -> dict[str, int]:
        """Before the start, whoever follows the log also sees what the preparation says: an image that is pulled."""
        return {BUILD: self._built} if log and self.run.started is None else {}

    def _ask(self, offsets: dict[str, int], wait: float) -> News:
        if self._mirror is not None and not self._asked:
            self._restore_copy(self._mirror)
        news = _end_last(self.target.news(self.run.id, offsets, CHUNK, wait))
        self._asked = True
        if self._mirror is not None:
            news = replace(news, parts={name: data for name, data in news.parts.items() if Mirror.keeps(name)})
            for name, data in news.parts.items():
                self._mirror.write(name, offsets.get(name, 0), data)
        built = news.parts.get(BUILD)
        if built:
            self._built += len(built)
            self._observer.build_output(built)
        return news

    def _restore_copy(self, mirror: Mirror) -> None:
        """Make the folder at home again if it was deleted, with what the history has read of the run before."""
        if mirror.exists():
            return
        make_folder(self.history.paths.root, self.run.spec)
        for name, read in self._reading.offsets.items():
            while mirror.size(name) < read:
                offset = mirror.size(name)
                data = self.target.news(self.run.id, {name: offset}, CHUNK).parts.get(name)
                if not data:
                    break  # the target has no more of it
                mirror.write(name, offset, data)

    def _take_in(self, news: News) -> None:
        parts = _new(news)
        if parts:
            self.run, self._reading = self.history.append(self.run.id, self._reading, parts)
            self._observer.state_changed(self.run)
            if any(name.startswith("metrics/") for name in parts):
                self._keep_series()

    def _keep_series(self) -> None:
        """Whoever looks at the curves of a long run later finds them drawn up already."""
        if time.monotonic() - self._kept < SERIES or self._deadline is not None:
            return
        from .history.series.series import Series  # noqa: PLC0415 - most commands are done before

        with Series(self.history.paths.root.run(self.run.id)) as series:
            series.catch_up()
        self._kept = time.monotonic()

    def _guarded(self, pull: Callable[[], News]) -> bytes:
        """Lost contact is noted, and changes nothing else about the run."""
        try:
            news = pull()
        except HostError as error:
            self._failures += 1
            self._note_contact(error)
            return b""
        self._failures = 0
        if self._is_back(news):
            self.run = self.history.note(self.run.id, in_contact)
        if self._lost:  # another command may have noted already that contact is back: our user is told by us
            self._lost = False
            self._observer.contact_changed(self.run)
        return news.parts.get(LOG, b"")

    def _is_back(self, news: News) -> bool:
        """Whether contact was lost, or the run was thought to be another machine's, and is no more."""
        is_elsewhere = self.run.contact != IN_CONTACT
        return self.run.no_contact is not None or (is_elsewhere and (news.supervised or self.run.status.final))

    def _note_contact(self, error: HostError) -> None:
        attached = error.code != NOT_ATTACHED
        if out_of_contact(self.run, error.message, attached) != self.run:
            self.run = self.history.note(self.run.id, lambda run: out_of_contact(run, error.message, attached))
        if not self._lost:
            self._lost = True
            self._observer.contact_changed(self.run)

    def _look_after(self, news: News) -> None:
        """Nobody watches the run: find out why, and put a supervisor to work if there is something to watch."""
        if not news.claimed and (news.exists or self.run.accepted is None):
            if not (in_sweep(self.run) and self._await_turn(str(self.run.spec.parent))):
                self._note_interrupted(self.run.spec.parent or self.run.id)
            return
        if not self._cares():
            return
        state, heartbeat = self.target.adopt(self.run.id, self.run.root)
        if state == "away":
            raise HostError(
                "the folder with its runs is not available; is the home folder on the target mounted?"
                f" If it was deleted: mlw cancel --forget {self.run.id}"
            )
        if state == "lost":
            self.run = self.history.note(self.run.id, lost)
        elif state == "elsewhere":
            words = "started on another machine, and only that machine can report its state"
            if heartbeat is not None:
                words += f"; last heartbeat {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(heartbeat))}"
            self.run = self.history.note(self.run.id, lambda run: replace(run, contact=words, no_contact=None))
        else:
            self._take_in(self._ask(dict(self._reading.offsets), 0.0))
            if self.run.contact != IN_CONTACT:  # it was thought to be another machine's
                self.run = self.history.note(self.run.id, in_contact)

    def _cares(self) -> bool:
        """Whether it is time to put a new supervisor to work."""
        if time.monotonic() - self._cared < CARE:
            return False
        self._cared = time.monotonic()
        return True

    def _note_interrupted(self, submitted: str) -> None:
        detail = None if self.history.submitter_lives(submitted) else INTERRUPTED
        if detail != self.run.detail:
            self.run = self.history.note(self.run.id, lambda run: interrupted(run, detail))

    def _await_turn(self, parent: str) -> bool:
        """Whether the run waits in a sweep, or did; False: the sweep itself has not begun."""
        sweep = self.target.news(parent, {}, CHUNK)
        if not sweep.claimed:
            return False
        state = "supervised"
        if not sweep.supervised and self._cares():
            state, _ = self.target.adopt(parent, self.history.known(parent)[0].root)
        if state in ("finished", "lost"):
            news = self._ask(dict(self._reading.offsets), 0.0)  # its turn may have come since we looked
            self._take_in(news)
            if not news.claimed:
                self.run = self.history.note(self.run.id, left_out)
            return True
        if self.run.status is not Status.QUEUED:
            self.run = self.history.note(self.run.id, wait_for_turn)
            self._observer.state_changed(self.run)
        return True


def _new(news: News) -> dict[str, bytes]:
    """What the history takes in."""
    return {name: data for name, data in news.parts.items() if data and name not in (LOG, BUILD)}


def _end_last(news: News) -> News:
    """The events last, and without the end of the run while metrics are pending: after it they are not asked for."""
    parts = dict(news.parts)
    events = parts.pop(EVENTS, b"")
    if events:
        parts[EVENTS] = before_end(events) if news.pending else events
    return replace(news, parts=parts)
