"""Facts about Docker and podman on this machine: version, and why this user cannot use them.

Only podman's version is queried, because any other command creates storage folders and a background
process. Without root, podman needs a user namespace with subordinate IDs; a few files show whether
these exist.
"""

from __future__ import annotations

import os
import sys

from .parallel_programs import collect_output, start_program
from .shared.containers import NO_IDS, NO_NAMESPACES, NO_RESPONSE, NO_UIDMAP
from .shared.failure import failure
from .shared.folder_tree import remove
from .shared.program_lookup import which
from .shared.untrusted_json import parse_json

TYPE_CHECKING = False  # importing typing would take as long as the rest of this module
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Sequence

    from .shared.failure import Failure

    Data = Dict[str, Any]

_CDI = ("/etc/cdi", "/var/run/cdi")
_SYS_ADMIN = 1 << 21  # CAP_SYS_ADMIN in CapEff of /proc/self/status


class Engines:
    """Concurrent queries of Docker and podman. Call ``close`` at the end."""

    def __init__(self, user: str) -> None:
        self._user = user
        self._folder = _temporary_folder()
        # Even `--version` makes podman create folders here, and `docker` may be podman under another name.
        overrides = dict.fromkeys(("HOME", "XDG_RUNTIME_DIR", "TMPDIR"), self._folder) if self._folder else {}
        env = dict(os.environ, **overrides)
        self._docker = start_program("docker", "--version", env=env)
        self._podman = start_program("podman", "--version", env=env)

    def docker(self, until: float) -> Optional[Data]:
        """Return facts about Docker, or None if it is not installed.

        If ``docker`` is podman under another name, only its version is read.
        """
        path, code, out, err = collect_output(self._docker, until)
        if podman_version(out):
            return podman_facts(path, code, out, err, self._podman_problem(until))
        if path is None or code is None:
            return docker_facts(path, code, out, err)
        return docker_facts(*collect_output(start_program("docker", "info", "--format", "{{json .}}"), until))

    def podman(self, until: float, optional: bool) -> Optional[Data]:
        """Return facts about podman, or None if it is not installed.

        ``optional``: Docker works, so do not check whether podman does.
        """
        path, code, out, err = collect_output(self._podman, until)
        return podman_facts(path, code, out, err, None if optional or path is None else self._podman_problem(until))

    def close(self) -> None:
        if self._folder:
            remove(self._folder)

    def _podman_problem(self, until: float) -> Optional[Failure]:
        if not needs_namespace():
            return None
        path, code, _, err = collect_output(start_program("unshare", "--user", "true"), until)
        refused = "; ".join(last_errors(err.splitlines())) if path and code else ""
        return podman_problem(self._user, refused)


def _temporary_folder() -> Optional[str]:
    import tempfile  # noqa: PLC0415 - slow to import

    try:
        return tempfile.mkdtemp(prefix="mlw-")
    except OSError:
        return None  # disk full, which is reported elsewhere


def is_usable(engine: Optional[Data]) -> bool:
    return engine is not None and not engine["error"]


# -- Docker ----------------------------------------------------------------------------------------


def docker_facts(path: Optional[str], code: Optional[int], out: str, err: str) -> Optional[Data]:
    """Return facts from the output of ``docker info``."""
    if path is None:
        return None
    info = _parse_object(out)
    facts = _common_facts(path)
    facts.update(_parse_docker_info(info))
    if not facts["version"]:
        facts.update(_describe_silence(code, [*err.splitlines(), *(info.get("ServerErrors") or [])]))
    docker_host = os.environ.get("DOCKER_HOST")
    if docker_host and docker_host.startswith("unix://"):
        facts["socket"] = docker_host[len("unix://") :]
    elif docker_host:
        # Runs mount local folders. An engine on another machine would find other folders, or none.
        facts.update(error="DOCKER_HOST is %s, but only an engine on this machine can be used" % docker_host, code=None)
    return facts


def _parse_docker_info(info: Mapping[str, Any]) -> Data:
    options = info.get("SecurityOptions") or []
    devices = info.get("DiscoveredDevices") or []
    return {
        "program": "docker",
        "version": info.get("ServerVersion") or None,
        "os": info.get("OSType") or None,
        "arch": info.get("Architecture") or None,
        "rootless": any("rootless" in option for option in options),
        # The toolkit's hook on PATH is enough for --gpus; the runtime need not be configured.
        "nvidia": "nvidia" in (info.get("Runtimes") or {})
        or which("nvidia-container-runtime-hook") is not None
        or any(str(device.get("ID")).startswith("nvidia.com/gpu") for device in devices),
    }


def _parse_object(text: str) -> Data:
    try:
        data = parse_json(text)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


# -- podman ----------------------------------------------------------------------------------------


def podman_facts(
    path: Optional[str], code: Optional[int], out: str, err: str, problem: Optional[Failure]
) -> Optional[Data]:
    """Return facts from the output of ``podman --version``.

    ``problem``: why this user cannot run containers with it.
    """
    if path is None:
        return None
    facts = _common_facts(path)
    facts.update(program="podman", version=podman_version(out), os="linux", arch=os.uname().machine)
    facts.update(rootless=os.getuid() != 0, nvidia=has_cdi())
    if not facts["version"]:
        facts.update(_describe_silence(code, err.splitlines()))
    elif problem:
        facts.update(error=problem["message"], code=problem["code"])
    return facts


def podman_version(out: str) -> Optional[str]:
    """Parse ``podman version 4.3.1`` to ``4.3.1``; return None if another program printed the output.

    Podman prints the name that it was invoked with: ``docker version 4.3.1``. Docker itself prints
    ``Docker version``.
    """
    fields = out.split()
    return fields[2] if len(fields) > 2 and fields[0] in ("podman", "docker") and fields[1] == "version" else None


def needs_namespace() -> bool:
    """Return whether podman would run rootless.

    That also applies to root in a container without CAP_SYS_ADMIN.
    """
    return sys.platform == "linux" and (os.getuid() != 0 or not int(_process_status("CapEff") or "0", 16) & _SYS_ADMIN)


def podman_problem(user: str, refused: str) -> Optional[Failure]:
    """Return why this user cannot run containers, or None.

    ``refused``: why no user namespace could be created, or "".
    """
    if refused:
        message = "%s is not allowed to create user namespaces, which rootless podman needs (%s)" % (user, refused)
        return failure(NO_NAMESPACES, message)
    for name in ("newuidmap", "newgidmap"):
        if which(name) is None:
            return failure(NO_UIDMAP, "%s, which rootless podman needs, is not installed" % name)
    for path in ("/etc/subuid", "/etc/subgid"):
        if not _uses_directory_service() and not has_range(_read(path), user, os.getuid()):
            return failure(NO_IDS, "no subordinate IDs for %s in %s, which rootless podman needs" % (user, path))
    return None


def has_range(text: str, user: str, uid: int) -> bool:
    """Return whether /etc/subuid or /etc/subgid assigns IDs to this user.

    The format of a line is ``NAME-OR-UID:FIRST:COUNT``.
    """
    rows = (line.strip().split(":") for line in text.splitlines())
    return any(len(row) == 3 and row[0] in (user, str(uid)) and row[2].isdigit() and int(row[2]) > 0 for row in rows)


def _uses_directory_service() -> bool:
    """Return whether a directory service provides the IDs: ``subid: sss`` in nsswitch.conf."""
    lines = (line.partition("#")[0].partition(":") for line in _read("/etc/nsswitch.conf").splitlines())
    return any(name.strip() == "subid" and sources.split() != ["files"] for name, _, sources in lines)


def _process_status(name: str) -> str:
    rows = (line.partition(":") for line in _read("/proc/self/status").splitlines())
    return next((value.strip() for key, _, value in rows if key == name), "")


# -- common ----------------------------------------------------------------------------------------


def has_cdi() -> bool:
    """Return whether a CDI specification for NVIDIA GPUs exists."""
    return any("nvidia" in name for folder in _CDI if os.path.isdir(folder) for name in os.listdir(folder))


def last_errors(lines: Sequence[str]) -> List[str]:
    """Return the last two distinct lines of an engine's output, excluding warnings."""
    kept = [line.strip() for line in lines if line.strip() and "level=warning" not in line]
    return list(dict.fromkeys(kept))[-2:]


def _common_facts(path: str) -> Data:
    facts: Data = {"path": path, "error": None, "code": None, "socket": None}
    return dict(facts, selinux=os.path.exists("/sys/fs/selinux/enforce"))


def _describe_silence(code: Optional[int], lines: Sequence[str]) -> Data:
    """Describe why an engine did not respond, including its own messages if there are any."""
    message = "; ".join(last_errors(lines))
    if message or code is not None:
        return {"error": message or "it exited with code %s and printed nothing" % code}
    return {"error": "it did not respond in time", "code": NO_RESPONSE}


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1_000_000)
    except OSError:
        return ""
