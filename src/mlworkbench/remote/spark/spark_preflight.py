"""Whether Spark and Java are there, before anybody starts: the same code looks as when it starts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from ..shared.untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict

STARTER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "inrun", "mlworkbench", "_spark")
_PATIENCE = 20.0
_CONNECT = 5.0
_VARIABLES = ("JAVA_HOME", "SPARK_HOME", "PATH")


def look(request: Dict[str, Any]) -> Dict[str, Any]:
    """``python`` is the one that runs the script; None: one that is made first, with these ``packages``."""
    told_python = request.get("python")
    python = os.path.expanduser(str(told_python or sys.executable))
    words = [python, STARTER, "--look" if told_python else "--look-around"]
    words.append(str(request.get("location") or "spark-submit"))
    words += [str(one) for one in request.get("packages") or ()]
    given = request.get("environment") or {}
    environment = dict(os.environ, **{name: str(given[name]) for name in _VARIABLES if name in given})
    reached = _reach(str(request.get("master") or ""))
    try:
        told = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, timeout=_PATIENCE, check=False
        ).stdout
        return dict(parse_json(told.decode("utf-8")), **reached)
    except (OSError, ValueError, subprocess.SubprocessError):
        return dict(reached, ok=True)  # a Python that does not start has its own words for that, at the start


def _reach(master: str) -> Dict[str, Any]:
    """Whether a standalone master answers; one of several is enough. Others have no address that could be tried."""
    if not master.startswith("spark://"):
        return {}
    why = "it has no address"
    for place in master[len("spark://") :].split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isdigit():
            why = "%s has no port" % place[:100]
            continue
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT).close()
            return {"reached": True}
        except (OSError, ValueError) as error:
            why = str(error)
    return {"unreachable": why[:200]}
