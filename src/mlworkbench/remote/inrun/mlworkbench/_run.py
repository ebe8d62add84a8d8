"""The run of this process, set by the supervisor through the environment, or a local run.

Outside a run, the first record creates a folder ``local/<time>-<random>`` in this user's data
folder of ML Workbench (``MLW_HOME``), with ``metrics/`` and ``work/outputs/`` as in any run. Child
processes find it through the environment. ``MLW_TRACKING=off`` disables recording, inside and
outside a run.
"""

import atexit
import json
import os
import sys
import threading
import time

_OFF = ("off", "0", "no", "false", "none", "disabled")


class Run(object):
    """The run of this process. Outside a run, the first use of a property starts a local run."""

    __slots__ = ("_folder", "_id", "_local_pid", "_lock", "off")

    def __init__(self, run_id, folder, off=False):
        self.off = off  # recording is disabled or impossible
        self._id = None if off else run_id or None
        self._folder = os.path.abspath(folder) if folder and not off else None
        self._local_pid = None  # the process that started the current run, if it is a local run
        self._lock = threading.RLock()  # reentrant, because signal handlers may also log

    @property
    def id(self):
        self._ensure_started()
        return self._id

    @property
    def folder(self):
        self._ensure_started()
        return self._folder

    @property
    def outputs(self):
        self._ensure_started()
        return os.path.join(self._folder, "work", "outputs") if self._folder else None

    def _ensure_started(self):
        if self._folder is None and not self.off:
            with self._lock:
                if self._folder is None and not self.off:
                    self._start_local_run()

    def _start_local_run(self):
        if self._begin(None):
            warn_once("outside", "not inside a run, recording into %s" % self._folder)

    def _begin(self, name):
        """Start a local run; return whether it was started."""
        try:
            local_run = _create_local_run(name)
        except (OSError, ValueError) as error:
            self.off = True
            warn_once("outside", "not inside a run, and nothing is recorded: %s" % error)
            return False
        if self._folder is not None:  # a signal handler has already started a run
            return False
        self._id, self._folder = local_run
        self._local_pid = os.getpid()
        os.environ["MLW_RUN_ID"], os.environ["MLW_RUN_FOLDER"] = self._id, self._folder
        atexit.register(_record_end, self._folder, os.getpid())
        return True

    def _leave(self):
        """Leave the local run, and return its folder. The next record starts another run."""
        folder, self._folder, self._id, self._local_pid = self._folder, None, None, None
        os.environ.pop("MLW_RUN_ID", None)
        os.environ.pop("MLW_RUN_FOLDER", None)
        atexit.unregister(_record_end)
        return folder

    def reset_lock(self):
        """Replace the lock in a forked child, because another thread may have held it."""
        self._lock = threading.RLock()

    def __repr__(self):
        if self._folder is None:
            return "<not inside a run>"
        return "<run %s>" % self._id if self._id else "<run in %s>" % self._folder


def current_folder():
    """Return the folder of the current run; None if nothing was recorded yet."""
    return run._folder


def may_start_runs():
    """Return whether this process may end its run and start another one: no run was submitted or inherited."""
    return not run.off and (run._folder is None or run._local_pid == os.getpid())


def begin_local_run(name):
    run._begin(name)


def end_local_run(status, cause):
    """Record the end of the local run of this process, and leave it."""
    _write_end(run._leave(), status, cause)


def _create_local_run(name):
    now = time.time()
    run_id = "local-%s-%s" % (time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)), os.urandom(3).hex())
    home = _data_folder()
    folder = os.path.join(home, "local", run_id)
    os.makedirs(os.path.dirname(home), exist_ok=True)
    for private in (home, os.path.dirname(folder), folder, os.path.join(folder, "work")):
        if not os.path.isdir(private):
            os.makedirs(private, 0o700, exist_ok=True)
    os.mkdir(os.path.join(folder, "work", "outputs"))
    facts = {
        "id": run_id,
        "name": name,
        "started": now,
        "script": sys.argv[0] if getattr(sys, "argv", None) else "",
        "arguments": list(getattr(sys, "argv", [])[1:]),
        "folder": os.getcwd(),
        "python": sys.executable,
        "user": os.environ.get("USER") or os.environ.get("USERNAME"),
        "pid": os.getpid(),
    }
    facts.update(_process_identity(), **_find_project(os.getcwd()))
    with open(os.path.join(folder, "local.json"), "w", encoding="ascii") as file:
        json.dump(facts, file)
    return run_id, folder


def _process_identity():
    """Return a value that distinguishes this process from a later one with the same PID (Linux only)."""
    try:
        with open("/proc/self/stat", "rb") as file:
            start = int(file.read().rpartition(b")")[2].split()[19])
        with open("/proc/sys/kernel/random/boot_id") as file:
            return {"start": start, "boot_id": file.read().strip()}
    except (OSError, ValueError, IndexError):
        return {}


def _find_project(folder):
    """Return the project that contains ``folder``; {} if there is none."""
    while True:
        for config_folder in ("aml_config", ".azureml"):
            try:
                with open(os.path.join(folder, config_folder, "project.json"), "rb") as file:
                    data = json.loads(file.read().decode("utf-8"))
                data = {key.lower(): value for key, value in data.items()}
                return {"project_id": str(data["id"]), "project_name": str(data.get("name") or "")}
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                continue
        folder, child = os.path.dirname(folder), folder
        if folder == child:
            return {}


def _record_end(folder, pid):
    """Record whether the script ended with an uncaught exception."""
    if os.getpid() != pid:
        return  # a forked child: the parent process records the end
    # At a prompt and in a notebook, an error does not end the run.
    error_value = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    if error_value is None:
        _write_end(folder, "completed")
    else:
        _write_end(folder, "failed", "%s: %s" % (type(error_value).__name__, error_value))


def _write_end(folder, status, cause=None):
    facts = {"ended": time.time(), "status": status}
    if cause is not None:
        facts["cause"] = cause[:500]
    try:
        with open(os.path.join(folder, "ended.json"), "w", encoding="ascii") as file:
            json.dump(facts, file)
    except OSError as error:
        warn_once("ended", "cannot record how the run ended: %s" % error)


def _data_folder():
    """Return the data folder that an installed ML Workbench uses on this machine."""
    override = os.environ.get("MLW_HOME")
    if override:
        return os.path.abspath(os.path.expanduser(override))
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


_warned = set()


def warn_once(subject, message):
    """Print a warning once per subject.

    Errors are ignored, because the script may have closed or replaced stderr.
    """
    if subject in _warned:
        return
    _warned.add(subject)
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
