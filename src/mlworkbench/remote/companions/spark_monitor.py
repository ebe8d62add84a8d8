"""Monitoring of a Spark application: progress, problems, cleanup, and the cause of a failure.

All events are derived from Spark's event log alone. A marker records the read position together
with the state at that position. A new supervisor continues from there and records only what was
not recorded before.
"""

from __future__ import annotations

import os
import socket
import time

from ..journal import Journal, log, write_with_reserve
from ..run_spec import companion_settings
from ..shared import run_endings
from ..shared.atomic_files import write_unsynced
from ..shared.folder_tree import remove
from ..shared.layout import RunFolder
from ..spark.application import Application
from ..spark.application_marker import marker_path, read_marker
from ..spark.driver_address import DriverPage
from ..spark.event_log import EventLog
from .companion import Companion

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from ..run_spec import Spec
    from ..shared.failure import Failure, Reason
    from ..work import Work

    Facts = Optional[Dict[str, Any]]

SCRATCH = "scratch"  # folder for the driver's temporary files; ``_spark/__main__.py`` creates it
FACTS, PROGRESS, TROUBLE = "spark", "spark_progress", "spark_trouble"
PAGE_DELAY = 20.0  # seconds until the first page request, which costs a cold JVM 0.5 s; short jobs avoid it
_PAUSE = 0.4  # minimum seconds between two reads; longer if reading is slow
_PAUSE_FACTOR, _BEHIND_FACTOR = 50, 8
_MAX_PAUSE = 30.0
_MARKER_INTERVAL = 5.0  # seconds
_END_TIMEOUT = 30.0  # seconds
_GRACE = 5.0  # seconds for the driver's leftover processes to exit
_KILL_TIMEOUT = 10.0
_ADDRESS_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:-_/[]")


class SparkMonitor(Companion):
    """Monitor of a run's Spark application.

    ``mask`` removes secrets from a string, or the whole string if the secrets are unknown.
    """

    task = "following the Spark application"

    def __init__(self, run: RunFolder, spec: Spec, journal: Journal, mask: Callable[[str], str]) -> None:
        self._run = run
        self._spec = spec
        self._settings = companion_settings(spec, "spark") or {}
        self._journal = journal
        self._mask = mask
        marker = read_marker(run)
        self._log = EventLog(run.spark, marker.get("place"))
        self._name = self._log.name
        self._application_count = int(marker.get("count") or 0)  # number of applications so far
        self.application = Application(run.work, marker.get("data"))
        self._trouble_count = int(marker.get("numbered") or 0)  # number of problems so far
        self._recorded_before = journal.kinds.count(TROUBLE)
        self._waiting: List[Dict[str, Any]] = []
        self._facts: Facts = marker.get("facts")
        self._last_progress: Facts = marker.get("told")
        self._members: Any = None
        self._address: Optional[str] = (self._facts or {}).get("ui")
        self._page: Optional[DriverPage] = None
        self._page_from = 0.0
        self._began = self._next_marker = self._next_progress = 0.0
        self._next = 0.0
        self._dirty = False

    def prepare(self) -> None:
        """Create the folder for Spark's event log."""
        os.makedirs(self._run.spark, mode=0o700, exist_ok=True)

    # -- during the run --------------------------------------------------------------------------------------

    def tick(self, facts: Facts) -> None:
        """Read new events. If a write fails, for example on a full disk, try again later."""
        began = time.monotonic()
        if began < self._next:
            return
        try:
            self._read_events()
            self._query_page()
            self._record()
            self._save_marker()
        except OSError as error:
            log("cannot follow the Spark application, retrying: %s" % error)
            self._next = time.monotonic() + _MAX_PAUSE
            return
        took = time.monotonic() - began
        pause = max(_PAUSE, (_BEHIND_FACTOR if self._log.has_more else _PAUSE_FACTOR) * took)
        self._next = time.monotonic() + min(pause, _MAX_PAUSE)

    def _read_events(self) -> bool:
        """Read new events and return whether there may be more."""
        lines = self._log.read()
        if self._log.name != self._name:
            self._switch_application()
        for line in lines:
            self.application.feed(line)
            if self.application.problems:
                self._number_troubles()
        self._dirty = self._dirty or bool(lines)
        return bool(lines) or self._log.has_more

    def _switch_application(self) -> None:
        """Switch to the run's next application."""
        if self._name is not None:
            self._record(now=True)
        self._name = self._log.name
        self._application_count += 1
        self.application = Application(self._run.work)
        self._facts = self._last_progress = self._members = self._address = None
        self._close_page()
        self._dirty = True

    def _number_troubles(self) -> None:
        """Number new problems, so that none is recorded twice."""
        for trouble in self.application.problems:
            self._trouble_count += 1
            if self._trouble_count > self._recorded_before:
                text = trouble.get("reason")
                trouble["reason"] = self._mask(text) or None if text else None
                self._waiting.append(dict(trouble, number=self._trouble_count))
        self.application.problems = []

    def _query_page(self) -> None:
        data = self.application.data
        port = str(data["settings"].get("spark.ui.port") or "")
        if (
            self._address
            or not data["app"]
            or not _is_port(port)
            or data["ended"]
            or not _has_plain_page(data["settings"])
        ):
            self._close_page()
            return
        if self._page is None:
            self._page_from = self._page_from or time.monotonic() + PAGE_DELAY
            if time.monotonic() < self._page_from:
                return
        self._page = self._page or DriverPage(data["app"], int(port), _page_host(data))
        if not self._page.gave_up:
            self._address = self._page.poll()

    def _close_page(self) -> None:
        if self._page is not None:
            self._page.close()
            self._page = None

    # -- events ----------------------------------------------------------------------------------------------

    def _record(self, now: bool = False) -> None:
        data = self.application.data
        if data["app"] and (data["master"] or data["ended"] or now):
            facts = self._make_facts()
            if facts != self._facts:
                self._journal.add(FACTS, facts)
                self._facts, self._dirty = facts, True
                self._next_marker = 0.0  # save soon: the GPU observer uses the marker to identify the application
        while self._waiting:
            self._journal.add(TROUBLE, self._waiting[0])
            self._waiting.pop(0)
            now = True  # record progress as well, so that its counts match the recorded problems
        self._record_progress(now)

    def _make_facts(self) -> Dict[str, Any]:
        data, spark = self.application.data, self._settings
        facts = {"app": data["app"], "version": data["version"], "master": data["master"] or spark.get("master")}
        facts.update(deploy=spark.get("deploy"), events=self._run.spark, ui=self._address)
        facts.update(history=_history_address(data), number=self._application_count)
        return facts

    def _record_progress(self, now: bool) -> None:
        """Record progress, always including the last state.

        The interval is one second at first and grows to 1/60 of the elapsed time.
        """
        clock = time.monotonic()
        progress = self.application.progress()
        is_last = progress["ended"] and not (self._last_progress or {}).get("ended")
        if (
            progress == self._last_progress
            or not progress["app"]
            or not (now or is_last or clock >= self._next_progress)
        ):
            return
        data, members = progress, self.application.members()
        if members != self._members:
            data = dict(progress, members=members)
        self._journal.add(PROGRESS, data)
        self._last_progress, self._members, self._dirty = progress, members, True
        self._began = self._began or clock
        self._next_progress = clock + min(60.0, max(1.0, (clock - self._began) / 60))

    def _save_marker(self, now: bool = False) -> None:
        """Record the read position, and free the disk space of events that were read."""
        clock = time.monotonic()
        if not self._dirty or not (now or clock >= self._next_marker):
            return
        place, data = self._log.position(), self.application.data
        marker = {"place": place, "data": data, "numbered": self._trouble_count, "count": self._application_count}
        marker.update(facts=self._facts, told=self._last_progress)
        write_with_reserve(self._run, lambda: write_unsynced(marker_path(self._run), marker))
        self._dirty, self._next_marker = False, clock + _MARKER_INTERVAL
        self._log.trim()

    # -- end -------------------------------------------------------------------------------------------------

    def end_leftovers(self, work: Work, facts: Facts) -> None:
        """End the driver's remaining processes after the main process has ended."""
        began, terminated = time.monotonic(), False
        while work.living_processes(facts) and time.monotonic() < began + _GRACE + _KILL_TIMEOUT:
            if not terminated:
                work.terminate(facts)
                terminated = True
            elif time.monotonic() > began + _GRACE:
                work.kill(facts)
            time.sleep(0.05)

    def end(self, facts: Facts) -> None:
        self._close_page()
        deadline = time.monotonic() + _END_TIMEOUT
        try:
            while self._read_events() and time.monotonic() < deadline:
                pass
            self._record(now=True)
            self._save_marker(now=True)
        except OSError as error:
            log("cannot record all of the Spark application: %s" % error)
        finally:
            self._remove_scratch()

    def _remove_scratch(self) -> None:
        """Remove the files of a killed driver. Shuffle data may be as large as the data set itself."""
        try:
            remove(os.path.join(self._run.spark, SCRATCH))
        except OSError as error:
            log("the driver's scratch folder could not be removed: %s" % error)

    def explain(self, ending: str, reason: Optional[Reason], ended: Dict[str, Any]) -> Tuple[str, Optional[Reason]]:
        """Explain why a run failed. ``reason`` comes from the log."""
        if ending != run_endings.FAILED:
            return ending, reason
        from ..spark.spark_ending import explain_ending  # noqa: PLC0415 - only for failed runs

        return explain_ending(self._run, ended, reason or "", self.application, self._mask)

    def evidence(self, verdict: Facts, started: bool, ending: str, failure: Optional[Failure]) -> Facts:
        """Add the GPUs that were assigned to the executors."""
        from ..spark.executor_gpus import executor_verdict, requested_amount  # noqa: PLC0415 - most runs request none

        data = self.application.data
        request = requested_amount(self._spec, data["settings"])
        if not request:
            return verdict
        master = data["master"] or self._settings.get("master")
        return executor_verdict(verdict, request, data["given"] if data["app"] else None, started, str(master))


def _has_plain_page(settings: Dict[str, Any]) -> bool:
    """Return whether the driver serves its page over plain HTTP."""
    secure = settings.get("spark.ssl.ui.enabled") or settings.get("spark.ssl.enabled")
    return settings.get("spark.ui.enabled") != "false" and secure != "true"


def _history_address(data: Dict[str, Any]) -> Optional[str]:
    """Return the application's address on the history server configured in Spark's settings."""
    server = data["settings"].get("spark.yarn.historyServer.address") or ""
    if not server or not _ADDRESS_CHARACTERS.issuperset(server):
        return None
    server = server if server.startswith(("http://", "https://")) else "http://" + server
    return "%s/history/%s/jobs/" % (server.rstrip("/"), data["app"])


def _page_host(data: Dict[str, Any]) -> str:
    """Return the host of the driver's page. ``_spark/__main__.py`` makes a local Spark use loopback."""
    return "127.0.0.1" if str(data["master"] or "").partition("[")[0] == "local" else socket.gethostname()


def _is_port(text: str) -> bool:
    """Return whether the text is a port number, and low enough that the next ports can be tried as well."""
    return text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) < 65500
