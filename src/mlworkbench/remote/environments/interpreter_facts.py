"""Answers uv's question about a conda Python without starting that Python.

Run as ``python -I -S interpreter_facts.py REQUEST QUESTION...``. REQUEST is a file: {"prefix", "version", "library"}.
QUESTION is the command line that uv has for an interpreter. This machine's own Python answers it, and every fact that
depends on the version or on the prefix is replaced. The Python is taken for CPython.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

TYPE_CHECKING = False  # as in typing, whose import would take as long as the rest
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator

    Facts = Dict[str, Any]

_KNOWN = {"markers", "scheme", "virtualenv", "sys_executable", "sys_base_executable", "sys_prefix", "sys_path"}


def replace_facts(facts: Facts, prefix: str, version: str, library: str) -> Facts:
    """The facts of the Python in a prefix; ``library``: its ``lib/python3.x``.

    Raises ValueError if uv asks for facts or paths that are not known here.
    """
    if not set(facts) >= _KNOWN:
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
    inside = {"purelib": site, "platlib": site, "scripts": os.path.dirname(program), "data": prefix}
    new["scheme"] = dict(inside, include=os.path.join(prefix, "include", name))
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
    """All absolute paths in it: whatever uv writes to must be below the prefix."""
    if isinstance(value, str):
        if os.path.isabs(value):
            yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _paths(part)


def main(request: str, question: list[str]) -> None:
    with open(request, encoding="utf-8") as file:
        known = json.load(file)
    words = [sys.executable, *question]
    answer = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout
    facts = replace_facts(json.loads(answer.decode("utf-8")), known["prefix"], known["version"], known["library"])
    sys.stdout.write(json.dumps(facts))


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2:])
    except (OSError, ValueError, KeyError, subprocess.CalledProcessError) as error:
        sys.exit("error: %s" % error)
