"""Findings and remedies, derived from facts about this machine. Pure functions."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace

from ..hosts.replies import printable
from ..targets.machine_check import ERROR, OK, UNTESTED, WARNING, Finding, Size, engine_error
from .laptop_facts import Laptop
from .ssh_rules import diagnose_access
from .storage_rules import diagnose_storage

OLDEST_PYTHON = (3, 10)
SAFE_SQLITE = (3, 51, 3)  # older versions can corrupt a file that two programs write to
FUTURE = 120.0  # tolerated difference between clocks in seconds
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
_INDEXES = (
    "PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_NO_INDEX PIP_FIND_LINKS PIP_CONFIG_FILE UV_INDEX_URL UV_DEFAULT_INDEX"
    " UV_EXTRA_INDEX_URL UV_FIND_LINKS UV_OFFLINE UV_CONFIG_FILE"
).split()
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PATHS = ("unix://", "npipe://", "fd://")  # schemes of local paths, which contain no login
_MAX_LENGTH = 1000  # maximum length of a finding
_HIDES_ALL_GPUS = ("", "-1", "none", "void", "NoDevFiles")


def diagnose(laptop: Laptop, size: Size) -> list[Finding]:
    """Return all findings, the most fundamental ones first. ``size`` formats bytes.

    File names and variables may contain anything, so all strings are sanitized for a terminal.
    """
    return [_sanitize(finding) for finding in _collect_findings(laptop, size)]


def _sanitize(finding: Finding) -> Finding:
    return replace(
        finding,
        found=printable(finding.found, _MAX_LENGTH),
        hint=printable(finding.hint, _MAX_LENGTH) if finding.hint else None,
    )


def _collect_findings(laptop: Laptop, size: Size) -> list[Finding]:
    return [
        _mlw(laptop),
        _python(laptop),
        _system(laptop),
        *diagnose_storage(laptop, size),
        *diagnose_access(laptop),
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
    program = laptop.program
    description = f"{program.version}, {program.source} (editable installation)" if program.source else program.version
    if program.missing:
        message = f"{description}; required packages are missing: {', '.join(program.missing)}"
        return Finding("mlw", ERROR, message, "reinstall mlworkbench")
    if program.shadow:
        hint = "remove one of the installations, or change the order of PATH"
        return Finding(
            "mlw", WARNING, f"{description}; another installation comes first on PATH: {program.shadow}", hint
        )
    return Finding("mlw", OK, description)


def _python(laptop: Laptop) -> Finding:
    program = laptop.program
    description = f"{'.'.join(map(str, program.python))}, {program.executable}"
    if program.python < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return Finding("python", ERROR, f"{description} is too old", f"install mlw with Python {oldest} or newer")
    numbers = tuple(int(number) for number in (program.sqlite or "").split(".") if number.isdigit())
    if program.sqlite and numbers < SAFE_SQLITE:
        message = f"{description}; its SQLite {program.sqlite} can damage a history that several processes write"
        return Finding("python", WARNING, message, f"{program.executable} -m pip install --upgrade apsw")
    return Finding("python", OK, description)


def _system(laptop: Laptop) -> Finding:
    system = laptop.machine.os
    parts = [system.title or system.name or system.system or "unknown", system.arch, system.libc]
    description = ", ".join(part for part in parts if part)
    if system.system in UNTESTED:
        return Finding("system", WARNING, description, "mlw is tested on Linux only; report problems as issues")
    return Finding("system", OK, description)


# -- engines and environments ------------------------------------------------------------------------------


def _engines(laptop: Laptop) -> list[Finding]:
    """Check the container engines. No engine at all is no problem, because only local docker targets need one."""
    engines = {"docker": laptop.machine.docker, "podman": laptop.machine.podman}
    findings = []
    for name, engine in engines.items():
        if engine is None:
            continue
        problem = engine_error(engine, gpus=False)
        if problem is None:
            findings.append(
                Finding(name, OK, ", ".join(part for part in (engine.version, engine.os, engine.arch) if part))
            )
            continue
        message = problem.message
        address = laptop.variables.get("DOCKER_HOST")
        if address:  # remove the login, because engines repeat the address in errors
            message = message.replace(address, without_login(address))
        hint = f"{problem.hint} (only needed for targets of type docker on this machine)"
        findings.append(Finding(name, WARNING, message, hint, problem.explain))
    return findings or [Finding("docker", OK, "not installed; only needed for targets of type docker on this machine")]


def _environments(laptop: Laptop) -> Finding:
    tools = laptop.tools
    missing = [name for name, available in (("uv", tools.uv_version), ("py-rattler", tools.rattler)) if not available]
    if missing:
        reason = f"{tools.uv} does not start" if tools.uv and not tools.uv_version else "not installed"
        message = f"{' and '.join(missing)}: {reason}; environments cannot be resolved"
        hint = f"{laptop.program.executable} -m pip install {' '.join(missing)}"
        return Finding("environments", ERROR, message, hint)
    return Finding("environments", OK, f"uv {tools.uv_version} for pip packages, py-rattler for conda packages")


def _scripts(laptop: Laptop) -> Finding:
    tools = laptop.tools
    if tools.script:
        return Finding("scripts", OK, f"target local uses {tools.script}, unless pythonLocation is set")
    hint = "install Python, or set pythonLocation or userManagedEnvironment: false in local.compute"
    return Finding("scripts", WARNING, tools.script_problem or "no Python on PATH", hint, "no-python")


# -- network and clock -----------------------------------------------------------------------------------------


def _network(laptop: Laptop) -> Finding:
    """Report settings for package downloads.

    Values may contain passwords, so only the host of a proxy is shown.
    """
    variables = laptop.variables
    missing_files = [name for name in laptop.missing_files if name in variables]
    if missing_files:
        message = ", ".join(f"{name} ({variables[name]})" for name in missing_files)
        return Finding(
            "network",
            ERROR,
            f"set to a file that does not exist: {message}",
            "unset or correct it",
            "index-not-reached",
        )
    conflicts = [name for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") if _differs(variables, name)]
    if conflicts:
        message = f"{conflicts[0]} and {conflicts[0].lower()} differ, and programs use one or the other"
        return Finding("network", WARNING, message, "set both to the same value", "index-not-reached")
    parts = [f"{name} ({_machine(variables[name])})" for name in _PROXIES if name in variables]
    parts += [name for name in (*_CERTIFICATES, *_INDEXES) if name in variables]
    return Finding("network", OK, f"set: {', '.join(parts)}" if parts else "no proxy or custom certificates")


def _differs(variables: dict[str, str], name: str) -> bool:
    return name in variables and name.lower() in variables and variables[name] != variables[name.lower()]


def without_login(address: str) -> str:
    """Remove the user and password from an address: everything before the last ``@``."""
    if address.startswith(_PATHS):
        return address
    scheme = _SCHEME.match(address)
    _, at, host = address.rpartition("@")
    return scheme.group() + host if at and scheme else host


def _machine(address: str) -> str:
    """Return only the host name of an address."""
    host = _SCHEME.sub("", without_login(address), count=1)
    name = re.match(r"\[([^\]]*)\]|[^:/?#]*", host)
    return (name and (name.group(1) or name.group())) or "?"


def _clock(laptop: Laptop) -> Finding:
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(laptop.now))
    hint = "set the clock with 'sudo timedatectl set-ntp true'"
    if laptop.now < laptop.built - FUTURE:
        return Finding("clock", WARNING, f"{now} is earlier than the installation of mlw", hint)
    written = laptop.history.written if laptop.history else None
    if written is not None and written > laptop.now + FUTURE:
        return Finding("clock", WARNING, f"{now} is earlier than the last write to the history", hint)
    return Finding("clock", OK, now)


# -- terminal, shell, and variables ----------------------------------------------------------------------


def _terminal(laptop: Laptop) -> Finding:
    terminal = laptop.terminal
    if terminal.locale_problem:
        message = f"the locale of this shell is not installed ({terminal.locale_problem})"
        return Finding("terminal", WARNING, message, "export LC_ALL=C.UTF-8")
    if not terminal.encoding.replace("-", "").startswith("utf8"):
        message = f"encoding {terminal.encoding}: some characters are shown as escapes"
        return Finding("terminal", WARNING, message, "export LC_ALL=C.UTF-8")
    if not terminal.is_terminal:
        return Finding("terminal", OK, f"{terminal.encoding}, not a terminal: plain text tables")
    return Finding(
        "terminal",
        OK,
        f"{terminal.encoding}, {terminal.width} columns, {'colors' if terminal.has_colors else 'no colors'}",
    )


def _completion(laptop: Laptop) -> Finding:
    shell = laptop.login_shell
    if shell.setup_command is None:
        return Finding(
            "completion", OK, f"not available for {shell.name or 'an unknown shell'}; only for bash, zsh, and fish"
        )
    if shell.completes:
        return Finding("completion", OK, f"set up for {shell.name}")
    return Finding("completion", OK, f"not set up for {shell.name}; see '{shell.setup_command}'")


def _browser(laptop: Laptop) -> Finding:
    if not laptop.parts.ui_missing:
        return Finding("browser", OK, "mlw ui is installed")
    return Finding("browser", OK, f"mlw ui is not installed; install it with: {laptop.parts.install}")


def _variables(laptop: Laptop) -> list[Finding]:
    """Report environment variables that change behavior, with one finding for each."""
    variables, findings = laptop.variables, []
    for name, warns, message, hint in (
        ("PYTHONHOME", True, "changes where Python searches for its standard library", "unset PYTHONHOME"),
        ("PYTHONPATH", True, "overrides modules of mlw and of environments", "unset PYTHONPATH for mlw"),
        ("PYTHONWARNINGS", False, "changes which warnings Python shows", None),
        (
            "MLW_TRACKING",
            variables.get("MLW_TRACKING") == "off",
            "scripts started without mlw record nothing",
            "unset MLW_TRACKING",
        ),
        ("MLW_RUN_ID", True, "this shell is inside a run: scripts record into that run", "unset MLW_RUN_ID"),
        ("LD_PRELOAD", True, "loads a library into every program", "unset LD_PRELOAD"),
        ("LD_LIBRARY_PATH", False, "also set for scripts; can override libraries of an environment", None),
        ("DOCKER_HOST", False, "container engine used on this machine", None),
    ):
        if name in variables:
            state = WARNING if warns else OK
            value = without_login(variables[name]) if name == "DOCKER_HOST" else variables[name]
            findings.append(Finding(name, state, f"{value}: {message}", hint if warns else None))
    hidden = variables.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and hidden.strip() in _HIDES_ALL_GPUS:
        message = f"{hidden!r} hides every GPU from scripts on this machine"
        findings.append(Finding("CUDA_VISIBLE_DEVICES", WARNING, message, "unset CUDA_VISIBLE_DEVICES", "gpu-hidden"))
    active = variables.get("VIRTUAL_ENV") or variables.get("CONDA_PREFIX")
    if active and not _is_mlw_environment(active, laptop):
        findings.append(Finding("environment", OK, f"{active} is active; target local uses its Python"))
    return findings


def _is_mlw_environment(folder: str, laptop: Laptop) -> bool:
    return os.path.dirname(os.path.dirname(laptop.program.executable)) == folder
