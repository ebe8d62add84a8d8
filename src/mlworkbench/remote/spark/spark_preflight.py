"""Check before a run whether Spark and Java are installed, using the code that would start them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from ..shared.untrusted_json import parse_json

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict

STARTER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "inrun", "mlworkbench", "_spark")
_TIMEOUT = 20.0
_CONNECT_TIMEOUT = 5.0
_VARIABLES = ("JAVA_HOME", "SPARK_HOME", "PATH")


def check_spark(request: Dict[str, Any]) -> Dict[str, Any]:
    """Return whether Spark can start for a run, and whether its master responds.

    ``python`` in the request is the script's interpreter, or None if its environment is not built yet. In that
    case, ``packages`` lists the Spark and Java packages of the environment.
    """
    given_python = request.get("python")
    python = os.path.expanduser(str(given_python or sys.executable))
    command = [python, STARTER, "--look" if given_python else "--look-around"]
    command.append(str(request.get("location") or "spark-submit"))
    command += [str(package) for package in request.get("packages") or ()]
    variables = request.get("environment") or {}
    environment = dict(os.environ, **{name: str(variables[name]) for name in _VARIABLES if name in variables})
    connection = _check_master(str(request.get("master") or ""))
    try:
        output = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, timeout=_TIMEOUT, check=False
        ).stdout
        return dict(parse_json(output.decode("utf-8")), **connection)
    except (OSError, ValueError, subprocess.SubprocessError):
        return dict(connection, ok=True)  # if Python does not start, the run itself reports it


def _check_master(master: str) -> Dict[str, Any]:
    """Check whether a standalone master responds. Other masters have no address to test.

    If there are several standalone masters, one response is sufficient.
    """
    if not master.startswith("spark://"):
        return {}
    error_text = "it has no address"
    for address in master[len("spark://") :].split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            error_text = "%s has no port" % address[:100]
            continue
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT).close()
            return {"reached": True}
        except (OSError, ValueError) as error:
            error_text = str(error)
    return {"unreachable": error_text[:200]}
