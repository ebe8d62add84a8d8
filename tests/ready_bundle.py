"""mlw's files for targets with their bytecode, copied into stores of test users before their first run on this machine.

Otherwise, the first run of each user compiles some 75 modules and asks the Python for its version, which costs as much
as the run. Commands of tests with the mark `installed` do that themselves.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from functools import lru_cache
from pathlib import Path

from mlworkbench.hosts import bundle
from mlworkbench.testing import User, processes
from tests.empty_python import use_empty_python
from tests.machines.programs import call

_lock = threading.Lock()
_STARTERS = {"submit", "ui"}  # commands that may start a run on this machine


def provide_bundle(store: Path, arguments: tuple[str, ...], env: dict[str, str]) -> None:
    """Copy the bundle into a store that has none, if the command may need it. Killed commands install it themselves."""
    if not arguments or arguments[0] not in _STARTERS or "--dry-run" in arguments or "MLW_FAILPOINT" in env:
        return
    with _lock:  # tests run commands in threads, too
        if not (store / "lib").exists():
            call("mkdir", "-p", "-m", "700", str(store), str(store / "lib"), str(store / "cache"))
            for path in ("cache/interpreters.json", f"lib/{bundle.digest()}"):
                part = store / f"{path}.part"
                call("cp", "-aT", str(_template() / path), str(part))
                part.rename(store / path)  # a command may be running


@lru_cache
def _template() -> Path:
    """Install and compile the bundle as a real run does, and return the store."""
    folder = Path(tempfile.mkdtemp(prefix="bundle-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    user = User(folder)
    use_empty_python(user.env)
    root = user.project("demo", train="print(1)")
    done = user.mlw("submit", "-c", "local", "train.py", cwd=root)
    assert done.code == 0, done
    processes.end_processes(user.store)
    return user.store
