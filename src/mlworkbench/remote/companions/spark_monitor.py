"""A Spark application as its supervisor sees it: what it tells of itself, what it leaves behind, why it failed.

What is told is made from Spark's events alone, and how far they were read is noted together with what they came to: a
supervisor that takes over goes on from there, comes to the same, and tells only what was not told.
"""

from __future__ import annotations

import os
import socket
import time

from ..journal import Journal, log, spare_room
from ..run_spec import companion_settings
from ..shared import endings
from ..shared.files import write_note
from ..shared.layout import RunFolder
from ..shared.tree import remove
from ..spark.application import Application
from ..spark.eventlog import EventLog
from ..spark.note import note_of, read_note
from ..spark.page import Page
from .companion import Companion

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from ..run_spec import Spec
    from ..shared.failure import Failure, Reason
    from ..work import Work

    Facts = Optional[Dict[str, Any]]

SCRATCH = "scratch"  # the driver's own, in the folder of what Spark tells; the starter makes it
FACTS, PROGRESS, TROUBLE = "spark", "spark_progress", "spark_trouble"
PAGE = 20.0  # seconds before the page is asked: its first answer costs a cold JVM half a second, which short jobs keep
_PAUSE = 0.4  # seconds between two looks, and more where one takes long
_SHARE, _BEHIND = 50, 8
_RARELY = 30.0
_NOTED = 5.0  # seconds between two notes of how far it was read
_AT_THE_END = 30.0  # seconds
_GRACE = 5.0  # for what a driver leaves behind
_GIVE_UP = 10.0
_ADDRESS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:-_/[]")


class Spark(Companion):
    """Of one run. ``mask`` takes secrets out of a text; it gives nothing of one where it cannot know them."""

    task = "following the Spark application"

    def __init__(self, run: RunFolder, spec: Spec, journal: Journal, mask: Callable[[str], str]) -> None:
        self._run = run
        self._spec = spec
        self._settings = companion_settings(spec, "spark") or {}
        self._journal = journal
        self._mask = mask
        noted = read_note(run)
        self._log = EventLog(run.spark, noted.get("place"))
        self._name = self._log.name
        self._count = int(noted.get("count") or 0)  # of applications
        self.application = Application(run.work, noted.get("data"))
        self._numbered = int(noted.get("numbered") or 0)  # troubles so far
        self._told_before = journal.kinds.count(TROUBLE)
        self._waiting: List[Dict[str, Any]] = []
        self._facts: Facts = noted.get("facts")
        self._told: Facts = noted.get("told")
        self._members: Any = None
        self._address: Optional[str] = (self._facts or {}).get("ui")
        self._page: Optional[Page] = None
        self._page_from = 0.0
        self._began = self._next_note = self._next_tale = 0.0
        self._next = 0.0
        self._dirty = False

    def prepare(self) -> None:
        """The folder into which Spark writes its event log."""
        os.makedirs(self._run.spark, mode=0o700, exist_ok=True)

    # -- while it goes on ------------------------------------------------------------------------------------

    def tick(self, facts: Facts) -> None:
        """Read what is new. A disk that refuses is tried again."""
        began = time.monotonic()
        if began < self._next:
            return
        try:
            self._look()
            self._ask_page()
            self._tell()
            self._keep()
        except OSError as error:
            log("cannot follow the Spark application, retrying: %s" % error)
            self._next = time.monotonic() + _RARELY
            return
        took = time.monotonic() - began
        pause = max(_PAUSE, (_BEHIND if self._log.behind else _SHARE) * took)
        self._next = time.monotonic() + min(pause, _RARELY)

    def _look(self) -> bool:
        """Whether there was anything new."""
        lines = self._log.read()
        if self._log.name != self._name:
            self._turn()
        for line in lines:
            self.application.feed(line)
            if self.application.troubles:
                self._number()
        self._dirty = self._dirty or bool(lines)
        return bool(lines) or self._log.behind

    def _turn(self) -> None:
        """To the next application of this run."""
        if self._name is not None:
            self._tell(now=True)
        self._name = self._log.name
        self._count += 1
        self.application = Application(self._run.work)
        self._facts = self._told = self._members = self._address = None
        self._close_page()
        self._dirty = True

    def _number(self) -> None:
        """Troubles are counted through, so that none is told twice."""
        for trouble in self.application.troubles:
            self._numbered += 1
            if self._numbered > self._told_before:
                text = trouble.get("reason")
                trouble["reason"] = self._mask(text) or None if text else None
                self._waiting.append(dict(trouble, number=self._numbered))
        self.application.troubles = []

    def _ask_page(self) -> None:
        data = self.application.data
        port = str(data["settings"].get("spark.ui.port") or "")
        if self._address or not data["app"] or not _is_port(port) or data["ended"] or not _serves(data["settings"]):
            self._close_page()
            return
        if self._page is None:
            self._page_from = self._page_from or time.monotonic() + PAGE
            if time.monotonic() < self._page_from:
                return
        self._page = self._page or Page(data["app"], int(port), _host(data))
        if not self._page.silent:
            self._address = self._page.look()

    def _close_page(self) -> None:
        if self._page is not None:
            self._page.close()
            self._page = None

    # -- what is told ----------------------------------------------------------------------------------------

    def _tell(self, now: bool = False) -> None:
        data = self.application.data
        if data["app"] and (data["master"] or data["ended"] or now):
            facts = self._make_facts()
            if facts != self._facts:
                self._journal.add(FACTS, facts)
                self._facts, self._dirty = facts, True
                self._next_note = 0.0  # whoever measures GPUs knows the application from the note
        while self._waiting:
            self._journal.add(TROUBLE, self._waiting[0])
            self._waiting.pop(0)
            now = True  # what is counted and what is told go together
        self._tell_progress(now)

    def _make_facts(self) -> Dict[str, Any]:
        data, spark = self.application.data, self._settings
        facts = {"app": data["app"], "version": data["version"], "master": data["master"] or spark.get("master")}
        facts.update(deploy=spark.get("deploy"), events=self._run.spark, ui=self._address)
        facts.update(history=_history(data), number=self._count)
        return facts

    def _tell_progress(self, now: bool) -> None:
        """Once a second at first, later about sixty times in each span as long as all before; the last one always."""
        clock = time.monotonic()
        progress = self.application.progress()
        over = progress["ended"] and not (self._told or {}).get("ended")
        if progress == self._told or not progress["app"] or not (now or over or clock >= self._next_tale):
            return
        told, members = progress, self.application.members()
        if members != self._members:
            told = dict(progress, members=members)
        self._journal.add(PROGRESS, told)
        self._told, self._members, self._dirty = progress, members, True
        self._began = self._began or clock
        self._next_tale = clock + min(60.0, max(1.0, (clock - self._began) / 60))

    def _keep(self, now: bool = False) -> None:
        """Note how far it was read, and give back the disk that what was read took."""
        clock = time.monotonic()
        if not self._dirty or not (now or clock >= self._next_note):
            return
        place, data = self._log.place(), self.application.data
        noted = {"place": place, "data": data, "numbered": self._numbered, "count": self._count}
        noted.update(facts=self._facts, told=self._told)
        spare_room(self._run, lambda: write_note(note_of(self._run), noted))
        self._dirty, self._next_note = False, clock + _NOTED
        self._log.trim()

    # -- the end ---------------------------------------------------------------------------------------------

    def sweep(self, work: Work, facts: Facts) -> None:
        """The main process has ended: what is left of the driver must not go on without it."""
        began, asked = time.monotonic(), False
        while work.living(facts) and time.monotonic() < began + _GRACE + _GIVE_UP:
            if not asked:
                work.terminate(facts)
                asked = True
            elif time.monotonic() > began + _GRACE:
                work.kill(facts)
            time.sleep(0.05)

    def end(self, facts: Facts) -> None:
        self._close_page()
        deadline = time.monotonic() + _AT_THE_END
        try:
            while self._look() and time.monotonic() < deadline:
                pass
            self._tell(now=True)
            self._keep(now=True)
        except OSError as error:
            log("cannot record all of the Spark application: %s" % error)
        finally:
            self._clear()

    def _clear(self) -> None:
        """What a driver that was killed could not remove: shuffled data may be as large as the data themselves."""
        try:
            remove(os.path.join(self._run.spark, SCRATCH))
        except OSError as error:
            log("the driver's scratch folder could not be removed: %s" % error)

    def explain(self, ending: str, reason: Optional[Reason], ended: Dict[str, Any]) -> Tuple[str, Optional[Reason]]:
        """Of a run that failed, ``reason`` being what the log says."""
        if ending != endings.FAILED:
            return ending, reason
        from ..spark.ending import judge  # noqa: PLC0415 - regular expressions, for those that fail

        return judge(self._run, ended, reason or "", self.application, self._mask)

    def evidence(self, verdict: Facts, started: bool, ending: str, failure: Optional[Failure]) -> Facts:
        """GPUs that the executors were given."""
        from ..spark.gpus import asked_for, judge  # noqa: PLC0415 - most runs ask for none

        data = self.application.data
        asked = asked_for(self._spec, data["settings"])
        if not asked:
            return verdict
        master = data["master"] or self._settings.get("master")
        return judge(verdict, asked, data["given"] if data["app"] else None, started, str(master))


def _serves(settings: Dict[str, Any]) -> bool:
    """Whether the driver has a page that can be asked without more ado."""
    secure = settings.get("spark.ssl.ui.enabled") or settings.get("spark.ssl.enabled")
    return settings.get("spark.ui.enabled") != "false" and secure != "true"


def _history(data: Dict[str, Any]) -> Optional[str]:
    """Where a history server shows it afterwards, as Spark's settings name it."""
    server = data["settings"].get("spark.yarn.historyServer.address") or ""
    if not server or not _ADDRESS.issuperset(server):
        return None
    server = server if server.startswith(("http://", "https://")) else "http://" + server
    return "%s/history/%s/jobs/" % (server.rstrip("/"), data["app"])


def _host(data: Dict[str, Any]) -> str:
    """By which the page is found: Spark on one machine alone listens on loopback, as the starter has it."""
    return "127.0.0.1" if str(data["master"] or "").partition("[")[0] == "local" else socket.gethostname()


def _is_port(text: str) -> bool:
    """Also the next ones must be some."""
    return text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) < 65500
