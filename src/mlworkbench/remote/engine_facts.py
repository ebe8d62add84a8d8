"""Docker and podman of this machine, as plain data: which version, and why this user cannot use it.

Podman is asked for its version only: any other command makes storage folders, and a process that stays.
Without root it needs a user namespace with subordinate IDs; whether there is one shows in a few files.
"""

from __future__ import annotations

import os
import sys

from .questions import answer, ask
from .shared.containers import NO_IDS, NO_NAMESPACES, NO_RESPONSE, NO_UIDMAP
from .shared.failure import failure
from .shared.programs import which
from .shared.tree import remove
from .shared.untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import would take as long as the rest
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Sequence

    from .shared.failure import Failure

    Data = Dict[str, Any]

_CDI = ("/etc/cdi", "/var/run/cdi")
_SYS_ADMIN = 1 << 21  # in CapEff of /proc/self/status


class Engines:
    """Both programs are started at once and listened to later; then comes ``close``."""

    def __init__(self, user: str) -> None:
        self._user = user
        self._folder = _temporary_folder()
        # Even for its version podman makes folders, in these places; `docker` may be podman under another name.
        elsewhere = dict.fromkeys(("HOME", "XDG_RUNTIME_DIR", "TMPDIR"), self._folder) if self._folder else {}
        env = dict(os.environ, **elsewhere)
        self._docker = ask("docker", "--version", env=env)
        self._podman = ask("podman", "--version", env=env)

    def docker(self, until: float) -> Optional[Data]:
        """None if there is no such program. It may be podman under another name, which is not asked more."""
        path, code, out, err = answer(self._docker, until)
        if podman_version(out):
            return podman(path, code, out, err, self._podman_trouble(until))
        if path is None or code is None:
            return docker(path, code, out, err)
        return docker(*answer(ask("docker", "info", "--format", "{{json .}}"), until))

    def podman(self, until: float, spare: bool) -> Optional[Data]:
        """None if there is no such program. ``spare``: Docker works, so podman is not used and need not work."""
        path, code, out, err = answer(self._podman, until)
        return podman(path, code, out, err, None if spare or path is None else self._podman_trouble(until))

    def close(self) -> None:
        if self._folder:
            remove(self._folder)

    def _podman_trouble(self, until: float) -> Optional[Failure]:
        if not needs_namespace():
            return None
        path, code, _, err = answer(ask("unshare", "--user", "true"), until)
        refused = "; ".join(complaints(err.splitlines())) if path and code else ""
        return podman_trouble(self._user, refused)


def _temporary_folder() -> Optional[str]:
    import tempfile  # noqa: PLC0415 - slow to import

    try:
        return tempfile.mkdtemp(prefix="mlw-")
    except OSError:
        return None  # a full disk, which is reported elsewhere


def is_usable(engine: Optional[Data]) -> bool:
    return engine is not None and not engine["error"]


# -- Docker ----------------------------------------------------------------------------------------


def docker(path: Optional[str], code: Optional[int], out: str, err: str) -> Optional[Data]:
    """From the output of ``docker info``."""
    if path is None:
        return None
    said = _parse(out)
    found = _engine(path)
    found.update(_docker(said))
    if not found["version"]:
        found.update(_silence(code, [*err.splitlines(), *(said.get("ServerErrors") or [])]))
    given = os.environ.get("DOCKER_HOST")
    if given and given.startswith("unix://"):
        found["socket"] = given[len("unix://") :]
    elif given:
        # Runs mount folders of this machine: an engine elsewhere would not find them, or find others.
        found.update(error="DOCKER_HOST is %s, but only an engine on this machine can be used" % given, code=None)
    return found


def _docker(said: Mapping[str, Any]) -> Data:
    options = said.get("SecurityOptions") or []
    devices = said.get("DiscoveredDevices") or []
    return {
        "program": "docker",
        "version": said.get("ServerVersion") or None,
        "os": said.get("OSType") or None,
        "arch": said.get("Architecture") or None,
        "rootless": any("rootless" in option for option in options),
        # The toolkit's hook on PATH is enough for --gpus; the runtime need not be configured.
        "nvidia": "nvidia" in (said.get("Runtimes") or {})
        or which("nvidia-container-runtime-hook") is not None
        or any(str(device.get("ID")).startswith("nvidia.com/gpu") for device in devices),
    }


def _parse(text: str) -> Data:
    try:
        said = parse_json(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


# -- podman ----------------------------------------------------------------------------------------


def podman(path: Optional[str], code: Optional[int], out: str, err: str, trouble: Optional[Failure]) -> Optional[Data]:
    """From the output of ``podman --version``. ``trouble``: why this user cannot run containers with it."""
    if path is None:
        return None
    found = _engine(path)
    found.update(program="podman", version=podman_version(out), os="linux", arch=os.uname().machine)
    found.update(rootless=os.getuid() != 0, nvidia=has_cdi())
    if not found["version"]:
        found.update(_silence(code, err.splitlines()))
    elif trouble:
        found.update(error=trouble["message"], code=trouble["code"])
    return found


def podman_version(out: str) -> Optional[str]:
    """``podman version 4.3.1`` → ``4.3.1``; None if another program printed it.

    Podman prints the name it was called by: ``docker version 4.3.1``. Docker itself has a capital letter.
    """
    words = out.split()
    return words[2] if len(words) > 2 and words[0] in ("podman", "docker") and words[1] == "version" else None


def needs_namespace() -> bool:
    """Whether podman would run without privileges; root in a container without CAP_SYS_ADMIN does, too."""
    return sys.platform == "linux" and (os.getuid() != 0 or not int(_status("CapEff") or "0", 16) & _SYS_ADMIN)


def podman_trouble(user: str, refused: str) -> Optional[Failure]:
    """Why this user cannot run containers. ``refused``: why a user namespace could not be made, if it could not."""
    if refused:
        text = "%s is not allowed to create user namespaces, which rootless podman needs (%s)" % (user, refused)
        return failure(NO_NAMESPACES, text)
    for name in ("newuidmap", "newgidmap"):
        if which(name) is None:
            return failure(NO_UIDMAP, "%s, which rootless podman needs, is not installed" % name)
    for path in ("/etc/subuid", "/etc/subgid"):
        if not _from_directory() and not has_range(_read(path), user, os.getuid()):
            return failure(NO_IDS, "no subordinate IDs for %s in %s, which rootless podman needs" % (user, path))
    return None


def has_range(text: str, user: str, uid: int) -> bool:
    """Whether a line of /etc/subuid or /etc/subgid gives this user IDs: ``NAME-OR-UID:FIRST:COUNT``."""
    rows = (line.strip().split(":") for line in text.splitlines())
    return any(len(row) == 3 and row[0] in (user, str(uid)) and row[2].isdigit() and int(row[2]) > 0 for row in rows)


def _from_directory() -> bool:
    """Whether a directory service has the IDs: ``subid: sss`` in nsswitch.conf."""
    lines = (line.partition("#")[0].partition(":") for line in _read("/etc/nsswitch.conf").splitlines())
    return any(name.strip() == "subid" and sources.split() != ["files"] for name, _, sources in lines)


def _status(name: str) -> str:
    rows = (line.partition(":") for line in _read("/proc/self/status").splitlines())
    return next((value.strip() for key, _, value in rows if key == name), "")


# -- both ------------------------------------------------------------------------------------------


def has_cdi() -> bool:
    """Whether NVIDIA's GPUs are described for containers."""
    return any("nvidia" in name for folder in _CDI if os.path.isdir(folder) for name in os.listdir(folder))


def complaints(lines: Sequence[str]) -> List[str]:
    """What an engine ended with: its last words or the last but one, and no warnings, which come before."""
    kept = [line.strip() for line in lines if line.strip() and "level=warning" not in line]
    return list(dict.fromkeys(kept))[-2:]


def _engine(path: str) -> Data:
    facts: Data = {"path": path, "error": None, "code": None, "socket": None}
    return dict(facts, selinux=os.path.exists("/sys/fs/selinux/enforce"))


def _silence(code: Optional[int], lines: Sequence[str]) -> Data:
    """Why an engine did not answer: in its own words, if it said some."""
    said = "; ".join(complaints(lines))
    if said or code is not None:
        return {"error": said or "it exited with code %s and printed nothing" % code}
    return {"error": "it did not respond in time", "code": NO_RESPONSE}


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1_000_000)
    except OSError:
        return ""
