"""Facts about this machine → what is well, what is not, and the remedy. Pure: asks nobody anything."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace

from ..hosts.replies import printable
from ..targets.check import ERROR, OK, UNTESTED, WARNING, Finding, Size, engine_trouble
from .access import judge_access
from .facts import Laptop
from .storage import judge_storage

OLDEST_PYTHON = (3, 10)
SOUND_SQLITE = (3, 51, 3)  # older ones can damage a file that two programs write
FUTURE = 120.0  # seconds that a file may seem to come from the future
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
_INDEXES = (
    "PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_NO_INDEX PIP_FIND_LINKS PIP_CONFIG_FILE UV_INDEX_URL UV_DEFAULT_INDEX"
    " UV_EXTRA_INDEX_URL UV_FIND_LINKS UV_OFFLINE UV_CONFIG_FILE"
).split()
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PATHS = ("unix://", "npipe://", "fd://")  # addresses that are places on this machine: nobody logs in there
_LONGEST = 1000  # letters of a finding
_HIDING = ("", "-1", "none", "void", "NoDevFiles")


def judge(laptop: Laptop, size: Size) -> list[Finding]:
    """All findings, what everything depends on first. ``size`` says bytes as people do.

    Names of files and values of variables may hold anything: they are made harmless for a terminal, all at once.
    """
    return [_harmless(one) for one in _found(laptop, size)]


def _harmless(one: Finding) -> Finding:
    return replace(one, found=printable(one.found, _LONGEST), hint=printable(one.hint, _LONGEST) if one.hint else None)


def _found(laptop: Laptop, size: Size) -> list[Finding]:
    return [
        _mlw(laptop),
        _python(laptop),
        _system(laptop),
        *judge_storage(laptop, size),
        *judge_access(laptop),
        *_engines(laptop),
        _environments(laptop),
        _scripts(laptop),
        _network(laptop),
        _clock(laptop),
        _terminal(laptop),
        _completion(laptop),
        _browser(laptop),
        *_variables(laptop),
    ]


# -- mlw ---------------------------------------------------------------------------------------------


def _mlw(laptop: Laptop) -> Finding:
    one = laptop.program
    found = f"{one.version}, {one.source} (editable installation)" if one.source else one.version
    if one.missing:
        words = f"{found}; required packages are missing: {', '.join(one.missing)}"
        return Finding("mlw", ERROR, words, "reinstall mlworkbench")
    if one.shadow:
        hint = "remove one of the installations, or change the order of PATH"
        return Finding("mlw", WARNING, f"{found}; another installation comes first on PATH: {one.shadow}", hint)
    return Finding("mlw", OK, found)


def _python(laptop: Laptop) -> Finding:
    one = laptop.program
    found = f"{'.'.join(map(str, one.python))}, {one.executable}"
    if one.python < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        return Finding("python", ERROR, f"{found} is too old", f"install mlw with Python {wanted} or newer")
    numbers = tuple(int(word) for word in (one.sqlite or "").split(".") if word.isdigit())
    if one.sqlite and numbers < SOUND_SQLITE:
        words = f"{found}; its SQLite {one.sqlite} can damage a history that several processes write"
        return Finding("python", WARNING, words, f"{one.executable} -m pip install --upgrade apsw")
    return Finding("python", OK, found)


def _system(laptop: Laptop) -> Finding:
    system = laptop.machine.os
    words = [system.title or system.name or system.system or "unknown", system.arch, system.libc]
    found = ", ".join(word for word in words if word)
    if system.system in UNTESTED:
        return Finding("system", WARNING, found, "mlw is tested on Linux only; report problems as issues")
    return Finding("system", OK, found)


# -- what runs and builds ------------------------------------------------------------------------------


def _engines(laptop: Laptop) -> list[Finding]:
    """Only a note where there is none: only targets of type docker need one here."""
    engines = {"docker": laptop.machine.docker, "podman": laptop.machine.podman}
    findings = []
    for name, one in engines.items():
        if one is None:
            continue
        trouble = engine_trouble(one, gpus=False)
        if trouble is None:
            findings.append(Finding(name, OK, ", ".join(word for word in (one.version, one.os, one.arch) if word)))
            continue
        found = trouble.message
        address = laptop.variables.get("DOCKER_HOST")
        if address:  # engines name it when they cannot reach it
            found = found.replace(address, without_login(address))
        words = f"{trouble.hint} (only needed for targets of type docker on this machine)"
        findings.append(Finding(name, WARNING, found, words, trouble.explain))
    return findings or [Finding("docker", OK, "not installed; only needed for targets of type docker on this machine")]


def _environments(laptop: Laptop) -> Finding:
    tools = laptop.tools
    lacks = [name for name, there in (("uv", tools.uv_version), ("py-rattler", tools.rattler)) if not there]
    if lacks:
        what = f"{tools.uv} does not start" if tools.uv and not tools.uv_version else "not installed"
        found = f"{' and '.join(lacks)}: {what}; environments cannot be resolved"
        hint = f"{laptop.program.executable} -m pip install {' '.join(lacks)}"
        return Finding("environments", ERROR, found, hint)
    return Finding("environments", OK, f"uv {tools.uv_version} for pip packages, py-rattler for conda packages")


def _scripts(laptop: Laptop) -> Finding:
    tools = laptop.tools
    if tools.script:
        return Finding("scripts", OK, f"target local uses {tools.script}, unless pythonLocation is set")
    hint = "install Python, or set pythonLocation or userManagedEnvironment: false in local.compute"
    return Finding("scripts", WARNING, tools.script_problem or "no Python on PATH", hint, "no-python")


# -- the way out -----------------------------------------------------------------------------------------


def _network(laptop: Laptop) -> Finding:
    """Settings that packages are fetched with. Values may hold passwords: of proxies the machine is told only."""
    told = laptop.variables
    absent = [name for name in laptop.absent if name in told]
    if absent:
        words = ", ".join(f"{name} ({told[name]})" for name in absent)
        return Finding(
            "network", ERROR, f"set to a file that does not exist: {words}", "unset or correct it", "index-not-reached"
        )
    clash = [name for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") if _differs(told, name)]
    if clash:
        words = f"{clash[0]} and {clash[0].lower()} differ, and programs use one or the other"
        return Finding("network", WARNING, words, "set both to the same value", "index-not-reached")
    parts = [f"{name} ({_machine(told[name])})" for name in _PROXIES if name in told]
    parts += [name for name in (*_CERTIFICATES, *_INDEXES) if name in told]
    return Finding("network", OK, f"set: {', '.join(parts)}" if parts else "no proxy or custom certificates")


def _differs(told: dict[str, str], name: str) -> bool:
    return name in told and name.lower() in told and told[name] != told[name.lower()]


def without_login(address: str) -> str:
    """An address without name and password, which may hold any sign: all before the last @ goes."""
    if address.startswith(_PATHS):
        return address
    scheme = _SCHEME.match(address)
    _, at, place = address.rpartition("@")
    return scheme.group() + place if at and scheme else place


def _machine(address: str) -> str:
    """Its name alone."""
    place = _SCHEME.sub("", without_login(address), count=1)
    name = re.match(r"\[([^\]]*)\]|[^:/?#]*", place)
    return (name and (name.group(1) or name.group())) or "?"


def _clock(laptop: Laptop) -> Finding:
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(laptop.now))
    hint = "set the clock with 'sudo timedatectl set-ntp true'"
    if laptop.now < laptop.built - FUTURE:
        return Finding("clock", WARNING, f"{now} is earlier than the installation of mlw", hint)
    written = laptop.past.written if laptop.past else None
    if written is not None and written > laptop.now + FUTURE:
        return Finding("clock", WARNING, f"{now} is earlier than the last write to the history", hint)
    return Finding("clock", OK, now)


# -- the person ------------------------------------------------------------------------------------------


def _terminal(laptop: Laptop) -> Finding:
    one = laptop.terminal
    if one.locale_problem:
        words = f"the locale of this shell is not installed ({one.locale_problem})"
        return Finding("terminal", WARNING, words, "export LC_ALL=C.UTF-8")
    if not one.encoding.replace("-", "").startswith("utf8"):
        words = f"encoding {one.encoding}: some characters are shown as escapes"
        return Finding("terminal", WARNING, words, "export LC_ALL=C.UTF-8")
    if not one.person:
        return Finding("terminal", OK, f"{one.encoding}, not a terminal: plain text tables")
    return Finding("terminal", OK, f"{one.encoding}, {one.width} columns, {'colors' if one.colours else 'no colors'}")


def _completion(laptop: Laptop) -> Finding:
    one = laptop.login_shell
    if one.how is None:
        return Finding(
            "completion", OK, f"not available for {one.name or 'an unknown shell'}; only for bash, zsh, and fish"
        )
    if one.completes:
        return Finding("completion", OK, f"set up for {one.name}")
    return Finding("completion", OK, f"not set up for {one.name}; see '{one.how}'")


def _browser(laptop: Laptop) -> Finding:
    if not laptop.parts.ui_missing:
        return Finding("browser", OK, "mlw ui is installed")
    return Finding("browser", OK, f"mlw ui is not installed; install it with: {laptop.parts.install}")


def _variables(laptop: Laptop) -> list[Finding]:
    """What hides or changes things, each told by itself: there are rarely many."""
    told, found = laptop.variables, []
    for name, warns, words, hint in (
        ("PYTHONHOME", True, "changes where Python searches for its standard library", "unset PYTHONHOME"),
        ("PYTHONPATH", True, "overrides modules of mlw and of environments", "unset PYTHONPATH for mlw"),
        ("PYTHONWARNINGS", False, "changes which warnings Python shows", None),
        (
            "MLW_TRACKING",
            told.get("MLW_TRACKING") == "off",
            "scripts started without mlw record nothing",
            "unset MLW_TRACKING",
        ),
        ("MLW_RUN_ID", True, "this shell is inside a run: scripts record into that run", "unset MLW_RUN_ID"),
        ("LD_PRELOAD", True, "loads a library into every program", "unset LD_PRELOAD"),
        ("LD_LIBRARY_PATH", False, "also set for scripts; can override libraries of an environment", None),
        ("DOCKER_HOST", False, "container engine used on this machine", None),
    ):
        if name in told:
            state = WARNING if warns else OK
            value = without_login(told[name]) if name == "DOCKER_HOST" else told[name]
            found.append(Finding(name, state, f"{value}: {words}", hint if warns else None))
    hidden = told.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and hidden.strip() in _HIDING:
        words = f"{hidden!r} hides every GPU from scripts on this machine"
        found.append(Finding("CUDA_VISIBLE_DEVICES", WARNING, words, "unset CUDA_VISIBLE_DEVICES", "gpu-hidden"))
    active = told.get("VIRTUAL_ENV") or told.get("CONDA_PREFIX")
    if active and not _is_own(active, laptop):
        found.append(Finding("environment", OK, f"{active} is active; target local uses its Python"))
    return found


def _is_own(folder: str, laptop: Laptop) -> bool:
    return os.path.dirname(os.path.dirname(laptop.program.executable)) == folder
