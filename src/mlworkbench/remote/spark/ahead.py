"""Whether Spark and Java are there, before anybody starts: the same code looks as when it starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict

STARTER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "inrun", "mlworkbench", "_spark")
_PATIENCE = 20.0
_VARIABLES = ("JAVA_HOME", "SPARK_HOME", "PATH")


def look(request: Dict[str, Any]) -> Dict[str, Any]:
    """``python`` is the one that runs the script; None: one that is made first, with these ``packages``."""
    python = os.path.expanduser(str(request.get("python") or sys.executable))
    words = [python, STARTER, "--look", str(request.get("location") or "spark-submit")]
    words += [str(one) for one in request.get("packages") or ()]
    given = request.get("environment") or {}
    environment = dict(os.environ, **{name: str(given[name]) for name in _VARIABLES if name in given})
    try:
        told = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, timeout=_PATIENCE, check=False
        ).stdout
        return dict(json.loads(told.decode("utf-8")))
    except (OSError, ValueError, subprocess.SubprocessError):
        return {"ok": True}  # a Python that does not start has its own words for that, at the start
