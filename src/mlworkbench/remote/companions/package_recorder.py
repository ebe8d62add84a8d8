"""Record the packages of an existing Python, which has no lock file, in ``metrics/packages``.

A separate process lists them with low priority after the script has started, so that the run does not wait.
"""

from __future__ import annotations

import os

from ..launcher import child_environment
from ..run_spec import is_tracked
from ..shared import machine
from ..shared.layout import RunFolder
from .companion import Companion

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from ..run_spec import Spec

# Names of metadata folders contain name and version, so no metadata is parsed. Works in Python 3.5 and newer. The file
# gets its final name when it is complete.
_LIST_PACKAGES = r"""
import json, os, re, sys, time
try:
    os.nice(19)
except (AttributeError, OSError):
    pass
found = {}
for folder in sys.path:
    try:
        names = sorted(os.listdir(folder or "."))
    except OSError:
        continue
    for name in names:
        match = re.match(r"([A-Za-z0-9._]+)-([^-/]+)(-[^/]*)?\.(dist|egg)-info$", name)
        if match and match.group(1) != "mlworkbench_inrun":
            package = match.group(1).replace("_", "-")
            found.setdefault(package.lower(), (package, match.group(2)))
data = {"python": sys.version.split()[0], "packages": sorted(found.values())[:5000]}
part, path = sys.argv[1:]
with open(part, "w") as file:
    file.write(json.dumps({"k": "packages", "d": data, "t": time.time()}) + "\n")
os.rename(part, path)
"""


class PackageRecorder(Companion):
    """Recorder of the packages of an existing Python. Packages in containers are not visible from outside."""

    task = "listing packages"

    def __init__(self, run: RunFolder, spec: Spec) -> None:
        lock = spec.get("lock") or {}
        is_enabled = lock.get("kind") == "existing" and not spec.get("container") and is_tracked(spec)
        self._python = lock.get("python") if is_enabled else None
        self._run = run
        self._spec = spec
        self.pid: Optional[int] = None  # of the process that waits for the list; the supervisor reaps it

    def tick(self, facts: Optional[Dict[str, Any]]) -> None:
        if facts is not None and self._python and machine.CAN_FORK:
            self._start()

    def end(self, facts: Optional[Dict[str, Any]]) -> None:
        """Start listing if the script was faster. The ending does not wait for the list."""
        self.tick(facts)

    def _start(self) -> None:
        python, self._python = self._python, None
        if not isinstance(python, str) or os.path.exists(self._run.packages):
            return  # a successor of this supervisor continues the run
        # With the run's variables, the process would be taken for a process of the run.
        variables = child_environment(self._spec, {})
        environment = {name: value for name, value in variables.items() if not name.startswith("MLW_")}
        part = os.path.join(self._run.path, "packages.part")
        command = [python, "-c", _LIST_PACKAGES, part, self._run.packages]
        self.pid = machine.fork(lambda: _execute(command, environment))


def _execute(command: List[str], environment: Dict[str, str]) -> None:
    """Run the command and wait for it.

    This process has the variables of the supervisor, so that neither it nor the command below it count as a process of
    the run. The command alone would count while it starts, because a process has no variables at that moment.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.chdir(os.sep)
    os.spawnve(os.P_WAIT, command[0], command, environment)
