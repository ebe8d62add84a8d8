"""Follow a run by copying new bytes to the history and the screen.

Following can be resumed, because every read starts at an offset.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from .errors import HostError
from .history.rows import ReadPosition
from .history.run_folders import make_folder
from .history.store import History
from .hosts.host import News
from .hosts.unattached import NOT_ATTACHED
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
from .model import IN_CONTACT, JsonDict, Run, Status
from .received_data import BUILD, CHUNK, download_samples, end_last, new_parts, restore_copy
from .remote.shared.layout import is_untracked
from .run_observer import Observer
from .runfiles.local_copy import LOG, LocalCopy
from .scheduler_state import ReportTimer, has_ended, parse_report, with_report
from .targets.target import Target

MIN_POLL, MAX_POLL, POLL_SHARE = 0.004, 0.1, 0.05  # seconds between polls: minimum, maximum, and share of idle time
MAX_QUEUED_POLL = 2.0  # the maximum for a run that waits for a scheduler
MAX_WAIT = 5.0  # maximum seconds for which another machine waits for new data before it replies
FIRST_RETRY, MAX_RETRY = 0.5, 30.0  # seconds between attempts to reconnect
SERIES_INTERVAL = 5.0  # seconds between updates of the stored series
ADOPT_INTERVAL = 1.0  # seconds between attempts to start a new supervisor
GPU_SAMPLES, USAGE_SAMPLES = "gpu.jsonl", "effort.jsonl"


class Follower:
    """A follower of one run. ``run`` is always the state in the history.

    ``leave`` returns whether to stop following. With ``download_usage``, the resource usage of a remote run is
    downloaded while it is running. Without ``ask_scheduler``, the caller asks the scheduler for many runs at once
    and passes the reports to ``take_report``.
    """

    def __init__(
        self,
        history: History,
        run: Run,
        target: Target,
        *,
        leave: Callable[[Run], bool] = lambda run: False,
        download_usage: bool = False,
        ask_scheduler: bool = True,
    ) -> None:
        self.history = history
        self.run, self._reading = history.load(run.id)
        self.target = target
        self.offset = 0  # offset in the log
        self._observer = Observer()
        self._mirror = LocalCopy(history.paths.root.run(run.id)) if target.host.is_remote else None
        self._built = 0
        self._adopted_at = -ADOPT_INTERVAL
        self._series_updated_at = time.monotonic()  # time of the last series update
        self._failures = 0
        self._lost = False  # whether lost contact was reported to the user
        self._leave = leave
        self._download_usage = download_usage
        self._report_timer = ReportTimer() if ask_scheduler else None
        self.scheduled = False  # whether the run was last found under a scheduler, which knows whether it executes
        self._until: float | None = None  # monotonic time to stop following
        self._sampled = 0.0
        self._asked = False  # whether the machine has responded, so that further requests are quick
        self._deadline: float | None = None  # monotonic time after which no further request is sent
        self.overdue = False  # whether the last refresh hit its deadline before reading everything
        self._prefetched: News | HostError | None = None  # the result of ``prefetch`` for the next refresh

    def refresh(self, deadline: float | None = None) -> Run:
        """Update the state of the run, starting a new supervisor if it has none.

        Sends at least one request, but none after ``deadline`` (monotonic), even if more data remains.
        """
        self._deadline, self.overdue = deadline, False
        if is_untracked(self.run.id):
            self.run = self.history.get(self.run.id)
        elif not self.run.status.final:
            self._guarded(lambda: self._pull({}))
        return self.run

    def prefetch(self) -> tuple[str, ReadPosition, dict[str, bytes]] | None:
        """Send the first request of ``refresh`` early.

        Returns new data, which the caller must store with ``append_all`` and then pass to ``take``. Returns
        None if there is no new data or the machine did not respond; ``refresh`` then uses this result.
        """
        if self.run.status.final or is_untracked(self.run.id):
            return None
        try:
            news = self._ask(dict(self._reading.offsets), 0.0)
        except HostError as error:
            self._prefetched = error
            return None
        if new := new_parts(news):
            return self.run.id, self._reading, new
        self._prefetched = news
        return None

    def take(self, run: Run, reading: ReadPosition) -> None:
        """Adopt the state after the history has stored the data that ``prefetch`` returned."""
        self.run, self._reading = run, reading

    def chunks(
        self, live: bool = True, *, observer: Observer | None = None, until: float | None = None
    ) -> Iterator[bytes]:
        """Yield the log from ``offset`` until the run ends or, unless ``live``, up to its current end.

        Also stops if the submission of the run was interrupted, because no more data arrives unless the run
        is resumed. ``until`` (monotonic) sets an earlier end.
        """
        self._observer, self._until = observer or self._observer, until
        quiet_since = time.monotonic()
        while not is_untracked(self.run.id) and not self._should_stop():  # untracked runs have no log
            final = self.run.status.final
            data = self._next(live)
            if self._download_usage and not self._failures and time.monotonic() - self._sampled > SERIES_INTERVAL:
                self._sampled = time.monotonic()
                self._download_samples()
            if data:
                self.offset += len(data)
                quiet_since = time.monotonic()
                yield data
            elif not live or self.run.detail == INTERRUPTED or (final and not self._failures):
                self._download_samples()
                self._acknowledge()
                return
            else:
                self._pause(quiet_since)

    def _next(self, live: bool) -> bytes:
        """Read more of the log, from this machine if possible, else from the target."""
        if self._mirror is None:
            return self._guarded(lambda: self._pull({LOG: self.offset}))
        data = self._mirror.read_log(self.offset, CHUNK)
        if data or self.is_log_complete() or (self._failures and not live):
            return data  # no request is needed, or the last one failed and another would take long
        local_size = self._mirror.size()
        came = self._guarded(lambda: self._pull({LOG: local_size}, self._within(MAX_WAIT) if live else 0.0))
        return came if came and local_size == self.offset else self._mirror.read_log(self.offset, CHUNK)

    def is_log_complete(self) -> bool:
        """Return whether the local log is complete, so that the target need not be queried."""
        if self._mirror is None:
            return True
        return self.run.status.final and self._mirror.size() >= (self.run.log_size or 0)

    def log_was_shortened(self) -> bool:
        """Return whether the log was truncated on the target and is now shorter than the local copy."""
        if self._mirror is None or not self.run.status.final or self._mirror.size() <= (self.run.log_size or 0):
            return False
        try:
            return not self.target.host.read_file(self.run.id, LOG, self._mirror.size() - 1, 1)
        except HostError:
            return False  # the target is unreachable

    def _download_samples(self) -> None:
        """Download the resource usage of a remote run.

        The totals arrive with the event that ends the run; samples may follow later.
        """
        if self._mirror is None or not (self.run.status.final or (self._download_usage and self.run.started)):
            return
        used = bool(self.run.gpu and (self.run.gpu.get("used") or self._download_usage))
        for name, is_wanted in ((GPU_SAMPLES, used), (USAGE_SAMPLES, self._asked)):
            if is_wanted and not download_samples(self.target.host, self.run.id, self._mirror, name):
                return

    def _acknowledge(self) -> None:
        """Confirm that everything was downloaded if the log was the only result."""
        if self._mirror is None or not self.run.status.final or self.run.outputs or self._failures:
            return
        from .fetch_outputs import acknowledge  # noqa: PLC0415 - only needed for ended remote runs

        acknowledge(self.run, self.target.host, self.history.paths.root.run(self.run.id))

    def _pause(self, quiet_since: float) -> None:
        if self._failures:  # exponential backoff with jitter
            chance = 0.5 + os.urandom(1)[0] / 510
            time.sleep(self._within(min(MAX_RETRY, FIRST_RETRY * 2 ** min(self._failures, 10)) * chance))
        elif self._mirror is None or self.run.status.final or self.run.accepted is None or self._awaits_job():
            longest = MAX_QUEUED_POLL if self._awaits_job() else MAX_POLL
            time.sleep(self._within(min(longest, max(MIN_POLL, POLL_SHARE * (time.monotonic() - quiet_since)))))

    def _awaits_job(self) -> bool:
        """Return whether the run waits for a scheduler. Its machine then answers at once, even without news."""
        return self.scheduled and self.run.started is None and not self.run.status.final

    def _should_stop(self) -> bool:
        return self._leave(self.run) or (self._until is not None and time.monotonic() >= self._until)

    def _within(self, seconds: float) -> float:
        """Limit a wait to the time left for following the run."""
        return seconds if self._until is None else max(0.0, min(seconds, self._until - time.monotonic()))

    def _pull(self, log: dict[str, int], wait: float = 0.0) -> News:
        """Request all new data. The history stores all of it except the log."""
        while not self.run.status.final:
            news = self._take_prefetched() or self._ask(
                {**self._reading.offsets, **log, **self._build_log_offset(log)}, wait
            )
            before = self._reading
            self._store(news)
            if self._reading == before or news.parts.get(LOG):
                if not news.parts.get(LOG) and not self.run.status.final:
                    self._check_supervisor(news)
                if not self.run.status.final:
                    self._note_unwritten(news.unwritten_reason)
                return news
            if self._deadline is not None and time.monotonic() >= self._deadline:
                self.overdue = not self.run.status.final
                return news
        return self._ask(log, 0.0)

    def _take_prefetched(self) -> News | None:
        prefetched, self._prefetched = self._prefetched, None
        if isinstance(prefetched, HostError):
            raise prefetched
        return prefetched

    def _note_unwritten(self, why: str) -> None:
        """Record why the result of an ended run is not saved yet, or clear the reason if ``why`` is empty."""
        detail = f"{UNWRITTEN}: {why}" if why else None
        if detail != self.run.detail and (why or is_unwritten(self.run)):
            self.run = self.history.update(
                self.run.id, lambda run: run if run.status.final else replace(run, detail=detail, unwritten=detail)
            )
            self._observer.state_changed(self.run)

    def _build_log_offset(self, log: dict[str, int]) -> dict[str, int]:
        """Return the offset of preparation output (such as image pulls) to request until the run starts."""
        return {BUILD: self._built} if log and self.run.started is None else {}

    def _ask(self, offsets: dict[str, int], wait: float) -> News:
        if self._mirror is not None and not self._asked:
            self._restore_copy(self._mirror)
        news = end_last(self.target.news(self.run.id, offsets, CHUNK, wait))
        self._asked = True
        if self._mirror is not None:
            news = replace(news, parts={name: data for name, data in news.parts.items() if LocalCopy.accepts(name)})
            for name, data in news.parts.items():
                self._mirror.write(name, offsets.get(name, 0), data)
        built = news.parts.get(BUILD)
        if built:
            self._built += len(built)
            self._observer.build_output(built)
        return news

    def _restore_copy(self, mirror: LocalCopy) -> None:
        """Restore a deleted local run folder up to the offsets that the history has read."""
        if mirror.exists():
            return
        make_folder(self.history.paths.root, self.run.spec)
        restore_copy(self.target.host, self.run.id, mirror, self._reading.offsets)

    def _store(self, news: News) -> None:
        parts = new_parts(news)
        if parts:
            self.run, self._reading = self.history.append(self.run.id, self._reading, parts)
            self._observer.state_changed(self.run)
            if any(name.startswith("metrics/") for name in parts):
                self._update_series()

    def _update_series(self) -> None:
        """Update the stored series so that charts of long runs open quickly."""
        if time.monotonic() - self._series_updated_at < SERIES_INTERVAL or self._deadline is not None:
            return
        from .history.series.series_store import Series  # noqa: PLC0415 - most commands end before this

        with Series(self.history.paths.root.run(self.run.id)) as series:
            series.catch_up()
        self._series_updated_at = time.monotonic()

    def _guarded(self, pull: Callable[[], News]) -> bytes:
        """Call ``pull`` and record whether contact was lost. Nothing else about the run changes."""
        try:
            news = pull()
        except HostError as error:
            self._failures += 1
            self._note_contact(error)
            return b""
        self._failures = 0
        if self._is_back(news):
            self.run = self.history.update(self.run.id, in_contact)
        if self._lost:  # report restored contact even if another command has already recorded it
            self._lost = False
            self._observer.contact_changed(self.run)
        return news.parts.get(LOG, b"")

    def _is_back(self, news: News) -> bool:
        """Return whether contact is restored, or the run is no longer attributed to another machine."""
        is_elsewhere = self.run.contact != IN_CONTACT
        return self.run.no_contact is not None or (is_elsewhere and (news.supervised or self.run.status.final))

    def _note_contact(self, error: HostError) -> None:
        attached = error.code != NOT_ATTACHED
        if out_of_contact(self.run, error.message, attached) != self.run:
            self.run = self.history.update(self.run.id, lambda run: out_of_contact(run, error.message, attached))
        if not self._lost:
            self._lost = True
            self._observer.contact_changed(self.run)

    def _check_supervisor(self, news: News) -> None:
        self.scheduled = news.scheduled
        if self.scheduled:
            if self._report_timer is not None and self._report_timer.is_due():
                self.take_report(parse_report(self.target.statuses([self.run.id])[self.run.id]))
        elif not news.supervised:
            self._ensure_supervisor(news)

    def take_report(self, report: JsonDict) -> Run:
        """Update the state of the run from its scheduler's report. If its job has ended, find out how."""
        if self._report_timer is not None:
            self._report_timer.record(report)
        if with_report(self.run, report) != self.run:
            self.run = self.history.update(self.run.id, lambda run: with_report(run, report))
            self._observer.state_changed(self.run)
        if has_ended(report) and not self.run.status.final:
            self._adopt()
        return self.run

    def _ensure_supervisor(self, news: News) -> None:
        """Find out why the run has no supervisor, and start one if there is something to supervise."""
        if not news.claimed and (news.exists or self.run.accepted is None):
            if not (in_sweep(self.run) and self._update_waiting_child(str(self.run.spec.parent))):
                self._note_interrupted(self.run.spec.parent or self.run.id)
            return
        if self._may_adopt():
            self._adopt()

    def _adopt(self) -> None:
        state, heartbeat = self.target.adopt(self.run.id, self.run.root)
        if state == "away":
            raise HostError(
                "the folder with its runs is not available; is the home folder on the target mounted?"
                f" If it was deleted: mlw cancel --forget {self.run.id}"
            )
        if state == "lost":
            self.run = self.history.update(self.run.id, lost)
        elif state == "elsewhere":
            contact = "started on another machine, and only that machine can report its state"
            if heartbeat is not None:
                contact += f"; last heartbeat {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(heartbeat))}"
            self.run = self.history.update(self.run.id, lambda run: replace(run, contact=contact, no_contact=None))
        else:
            self._store(self._ask(dict(self._reading.offsets), 0.0))
            if self.run.contact != IN_CONTACT:  # the run was attributed to another machine
                self.run = self.history.update(self.run.id, in_contact)

    def _may_adopt(self) -> bool:
        """Return whether enough time has passed since the last attempt to start a supervisor."""
        if time.monotonic() - self._adopted_at < ADOPT_INTERVAL:
            return False
        self._adopted_at = time.monotonic()
        return True

    def _note_interrupted(self, submitted: str) -> None:
        detail = None if self.history.is_submitter_alive(submitted) else INTERRUPTED
        if detail != self.run.detail:
            self.run = self.history.update(self.run.id, lambda run: interrupted(run, detail))

    def _update_waiting_child(self, parent: str) -> bool:
        """Update the state of a run that waits in a sweep. Return False if the sweep has not started."""
        sweep = self.target.news(parent, {}, CHUNK)
        if not sweep.claimed:
            return False
        state = "supervised"
        if not sweep.supervised and self._may_adopt():
            state, _ = self.target.adopt(parent, self.history.load(parent)[0].root)
        if state in ("finished", "lost"):
            news = self._ask(dict(self._reading.offsets), 0.0)  # the run may have started in the meantime
            self._store(news)
            if not news.claimed:
                self.run = self.history.update(self.run.id, left_out)
            return True
        if self.run.status is not Status.QUEUED:
            self.run = self.history.update(self.run.id, wait_for_turn)
            self._observer.state_changed(self.run)
        return True
