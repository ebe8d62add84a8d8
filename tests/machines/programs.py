"""System programs that set up the machines, and the check that they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Failed(Exception):
    """Raised when a program ends with a nonzero exit code."""


def call(
    *argv: str, check: bool = True, text: str | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        argv,
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        env=environment(),
    )
    if check and done.returncode:
        raise Failed(f"{' '.join(argv)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def environment(**more: str) -> dict[str, str]:
    """Return the environment of system programs, without variables of the user who runs the tests."""
    return {"PATH": SYSTEM_PATH, "HOME": "/root", "LANG": "C.UTF-8", **more}


def find(program: str) -> str | None:
    return shutil.which(program, path=SYSTEM_PATH)


def need_all(*programs: str) -> None:
    """Skip the test if a program or root permission is missing. On CI, fail instead."""
    lacks = [program for program in programs if find(program) is None]
    if os.geteuid() != 0:
        lacks.append("being root")
    if not lacks:
        return
    why = f"missing for real machines: {', '.join(lacks)} (scripts/test-tools installs them)"
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


def crypted(password: str, salt: str) -> str:
    """Return a crypt(3) hash. Python 3.13 has no crypt module, and perl is on every Debian."""
    return call("perl", "-e", "chomp(my $p = <STDIN>); print crypt($p, $ARGV[0])", salt, text=password + "\n").stdout
