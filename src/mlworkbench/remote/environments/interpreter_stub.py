"""Answer uv's query about a conda Python without starting that Python.

Run as ``python -I -S interpreter_stub.py REQUEST QUERY...``. REQUEST is a file:
{"prefix", "version", "library"}. QUERY is the command line that uv uses to query an interpreter.
This machine's own Python answers it, and every fact that depends on the version or the prefix is
replaced. The Python is assumed to be CPython.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator

    Facts = Dict[str, Any]

_REQUIRED = {"markers", "scheme", "virtualenv", "sys_executable", "sys_base_executable", "sys_prefix", "sys_path"}


def replace_facts(facts: Facts, prefix: str, version: str, library: str) -> Facts:
    """Return the facts about the Python in a prefix; ``library`` is its ``lib/python3.x``.

    Raises ValueError if uv requests unknown facts or paths.
    """
    if not set(facts) >= _REQUIRED:
        raise ValueError("unsupported uv version: it requests interpreter facts that mlw does not provide")
    short = ".".join(version.split(".")[:2])
    name = os.path.basename(library)
    program, stdlib = os.path.join(prefix, "bin", "python"), os.path.join(prefix, library)
    site = os.path.join(stdlib, "site-packages")
    markers = dict(facts["markers"], implementation_name="cpython", platform_python_implementation="CPython")
    markers.update(implementation_version=version, python_full_version=version, python_version=short)
    new: Facts = {"markers": markers, "stdlib": stdlib, "site_packages": [site], "sys_path": [stdlib, site]}
    new.update(sys_executable=program, sys_base_executable=program, standalone=False, debug_enabled=False)
    new.update(sys_prefix=prefix, sys_base_prefix=prefix, sys_base_exec_prefix=prefix, gil_disabled=name.endswith("t"))
    scheme = {"purelib": site, "platlib": site, "scripts": os.path.dirname(program), "data": prefix}
    new["scheme"] = dict(scheme, include=os.path.join(prefix, "include", name))
    new["virtualenv"] = {"purelib": library + "/site-packages", "platlib": library + "/site-packages"}
    new["virtualenv"].update(include="include/site/" + name, scripts="bin", data="")
    answer = dict(facts, **new)
    if "extension_suffixes" in answer:
        answer["extension_suffixes"] = [".abi3.so", ".so"]
    for path in _paths(answer):
        if os.path.join(path, "").startswith(os.path.join(prefix, "")):
            continue
        raise ValueError("unsupported uv version: it requests a path that mlw does not provide: %s" % path)
    return answer


def _paths(value: Any) -> Iterator[str]:
    """Yield all absolute paths in a value. Every path that uv writes to must be below the prefix."""
    if isinstance(value, str):
        if os.path.isabs(value):
            yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _paths(part)


def main(request: str, arguments: list[str]) -> None:
    with open(request, encoding="utf-8") as file:
        request_data = json.load(file)
    command = [sys.executable, *arguments]
    answer = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout
    facts = replace_facts(
        json.loads(answer.decode("utf-8")), request_data["prefix"], request_data["version"], request_data["library"]
    )
    sys.stdout.write(json.dumps(facts))


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2:])
    except (OSError, ValueError, KeyError, subprocess.CalledProcessError) as error:
        sys.exit("error: %s" % error)
