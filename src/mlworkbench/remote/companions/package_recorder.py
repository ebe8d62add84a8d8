"""Record the packages of an existing Python, which has no lock file, in ``metrics/packages``.

A separate process lists them with low priority after the script has started, so that the run does not wait.
"""

from __future__ import annotations

import os
import subprocess

from ..launcher import child_environment
from ..shared.layout import RunFolder
from .companion import Companion

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

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
        is_tracked = spec.get("environment", {}).get("MLW_TRACKING") != "off"
        is_enabled = lock.get("kind") == "existing" and not spec.get("container") and is_tracked
        self._python = lock.get("python") if is_enabled else None
        self._run = run
        self._spec = spec
        self._process: Optional[subprocess.Popen[bytes]] = None

    def tick(self, facts: Optional[Dict[str, Any]]) -> None:
        if facts is not None and self._python and self._process is None:
            self._start()
        elif self._process is not None:
            self._process.poll()

    def end(self, facts: Optional[Dict[str, Any]]) -> None:
        """Start listing if the script was faster. The ending does not wait for the list."""
        self.tick(facts)

    def _start(self) -> None:
        python, self._python = self._python, None
        if not isinstance(python, str) or os.path.exists(self._run.packages):
            return  # a successor of this supervisor continues the run
        # The process is part of the supervisor. With the run's variables, it would be taken for a process of the run.
        variables = child_environment(self._spec, {})
        environment = {name: value for name, value in variables.items() if not name.startswith("MLW_")}
        environment["MLW_SUPERVISOR"] = "1"
        part = os.path.join(self._run.path, "packages.part")
        self._process = subprocess.Popen(
            [python, "-c", _LIST_PACKAGES, part, self._run.packages],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=os.path.abspath(os.sep),
            env=environment,
        )
