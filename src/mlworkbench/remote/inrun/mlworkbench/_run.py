"""Which run this process belongs to: as the supervisor told it through the environment, else a local one.

Outside a run the first thing that is recorded makes a folder ``local/<time>-<random>`` in ML Workbench's folder of
this user (``MLW_HOME``), with the same ``metrics/`` and ``work/outputs/`` as a run has; child processes find it through
the environment. ``MLW_TRACKING=off`` records nothing, inside and outside a run.
"""

import atexit
import json
import os
import sys
import threading
import time

_OFF = ("off", "0", "no", "false", "none", "disabled")


class Run(object):
    """The run around this process. Outside a run the first use of a field begins a local one."""

    __slots__ = ("_folder", "_id", "_lock", "off")

    def __init__(self, run_id, folder, off=False):
        self.off = off  # nothing is to be recorded, or it cannot be
        self._id = None if off else run_id or None
        self._folder = os.path.abspath(folder) if folder and not off else None
        self._lock = threading.RLock()  # a signal handler may log, too

    @property
    def id(self):
        self._begin()
        return self._id

    @property
    def folder(self):
        self._begin()
        return self._folder

    @property
    def outputs(self):
        self._begin()
        return os.path.join(self._folder, "work", "outputs") if self._folder else None

    def _begin(self):
        if self._folder is None and not self.off:
            with self._lock:
                if self._folder is None and not self.off:
                    self._begin_locally()

    def _begin_locally(self):
        try:
            made = _local_folder()
            if self._folder is not None:  # a signal handler was quicker
                return
            self._id, self._folder = made
            os.environ["MLW_RUN_ID"], os.environ["MLW_RUN_FOLDER"] = self._id, self._folder
            atexit.register(_tell_end, self._folder, os.getpid())
            tell_once("outside", "not inside a run, recording into %s" % self._folder)
        except (OSError, ValueError) as error:
            self.off = True
            tell_once("outside", "not inside a run, and nothing is recorded: %s" % error)

    def renew(self):
        """In the child of a fork: another thread may have held the lock."""
        self._lock = threading.RLock()

    def __repr__(self):
        if self._folder is None:
            return "<not inside a run>"
        return "<run %s>" % self._id if self._id else "<run in %s>" % self._folder


def _local_folder():
    now = time.time()
    run_id = "local-%s-%s" % (time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)), os.urandom(3).hex())
    home = _home()
    folder = os.path.join(home, "local", run_id)
    os.makedirs(os.path.dirname(home), exist_ok=True)
    for private in (home, os.path.dirname(folder), folder, os.path.join(folder, "work")):
        if not os.path.isdir(private):
            os.makedirs(private, 0o700, exist_ok=True)
    os.mkdir(os.path.join(folder, "work", "outputs"))
    facts = {
        "id": run_id,
        "started": now,
        "script": sys.argv[0] if getattr(sys, "argv", None) else "",
        "arguments": list(getattr(sys, "argv", [])[1:]),
        "folder": os.getcwd(),
        "python": sys.executable,
        "user": os.environ.get("USER") or os.environ.get("USERNAME"),
        "pid": os.getpid(),
    }
    facts.update(_process(), **_project(os.getcwd()))
    with open(os.path.join(folder, "local.json"), "w", encoding="ascii") as file:
        json.dump(facts, file)
    return run_id, folder


def _process():
    """What tells this process from a later one with the same number, where that is easily had (Linux)."""
    try:
        with open("/proc/self/stat", "rb") as file:
            start = int(file.read().rpartition(b")")[2].split()[19])
        with open("/proc/sys/kernel/random/boot_id") as file:
            return {"start": start, "boot_id": file.read().strip()}
    except (OSError, ValueError, IndexError):
        return {}


def _project(folder):
    """The project around the script, if there is one."""
    while True:
        for place in ("aml_config", ".azureml"):
            try:
                with open(os.path.join(folder, place, "project.json"), "rb") as file:
                    told = json.loads(file.read().decode("utf-8"))
                told = {key.lower(): value for key, value in told.items()}
                return {"project_id": str(told["id"]), "project_name": str(told.get("name") or "")}
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                continue
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return {}


def _tell_end(folder, pid):
    """How it ended, as far as the script itself can know: an exception that nobody caught, or none."""
    if os.getpid() != pid:
        return  # the child of a fork: it is the parent's to say
    # At a prompt and in a notebook an error is not the end.
    wrong = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    facts = {"ended": time.time(), "status": "completed" if wrong is None else "failed"}
    if wrong is not None:
        facts["cause"] = ("%s: %s" % (type(wrong).__name__, wrong))[:500]
    try:
        with open(os.path.join(folder, "ended.json"), "w", encoding="ascii") as file:
            json.dump(facts, file)
    except OSError as error:
        tell_once("ended", "cannot record how the run ended: %s" % error)


def _home():
    """The same folder as the installed ML Workbench uses on this machine."""
    given = os.environ.get("MLW_HOME")
    if given:
        return os.path.abspath(os.path.expanduser(given))
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.join("~", "AppData", "Local")
    elif os.environ.get("XDG_DATA_HOME", "").strip():
        base = os.environ["XDG_DATA_HOME"]
    elif sys.platform == "darwin":
        base = os.path.join("~", "Library", "Application Support")
    else:
        base = os.path.join("~", ".local", "share")
    base = os.path.expanduser(base)
    if base.startswith("~"):
        raise ValueError("this user has no home folder; set MLW_HOME to a folder")
    return os.path.join(os.path.abspath(base), "mlworkbench")


_told = set()


def tell_once(subject, message):
    """Say it on stderr, the first time only; a script may have closed or replaced its stderr."""
    if subject in _told:
        return
    _told.add(subject)
    try:
        sys.stderr.write("mlworkbench: %s\n" % message)
        sys.stderr.flush()
    except Exception:
        pass


run = Run(
    os.environ.get("MLW_RUN_ID"),
    os.environ.get("MLW_RUN_FOLDER"),
    os.environ.get("MLW_TRACKING", "").strip().lower() in _OFF,
)
