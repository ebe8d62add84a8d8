"""Docker and podman: the argument lists they are called with, the calls, what they answer.

Only the programs are used, never the engine's HTTP interface: they know the user's contexts, log-ins and podman's ways.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import subprocess

from .launcher import encode
from .mounts import translate
from .shared import machine
from .shared.layout import RunFolder
from .shared.tree import remove
from .shared.untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple

    Container = Dict[str, Any]

_OWNER = "mlw.folder"  # a label: the run folder whose container it is

# Beyond this many processes and threads it is a fork bomb, not a training.
_MOST_PROCESSES = "32768"

# What the user's command starts from, inside: $1 log, $2 the FIFO for the word, $3 our part of PYTHONPATH, $4 umask,
# $5 our part of PATH, $6 the C library that our environment needs. It writes to the log file itself, so that nothing
# is lost when the engine dies. All that can go wrong goes wrong before the word has come: an exit code after it is the
# script's own. Without the word the script never runs. A C library that will not do cannot be told from a script's
# failure later, so it is asked first; an image without getconf is asked by our own Python, which may not start at all.
NO_LOG, NO_COMMAND, NO_WORD, NO_LIBC = 98, 127, 99, 97
_ASK_LIBC = "import os; print(os.confstr('CS_GNU_LIBC_VERSION'))"
_SHELL = (
    'umask "$4"; true >>"$1" || exit %d; exec >>"$1" 2>&1 </dev/null; '
    '[ -z "$5" ] || export PATH="$5:$PATH"; '
    'if [ -n "$6" ]; then mlw=$(getconf GNU_LIBC_VERSION 2>/dev/null || "$5/python" -I -S -c "%s" 2>/dev/null); '
    'case $mlw in "glibc 2."*) mlw=${mlw#glibc 2.}; [ "${mlw%%%%.*}" -ge "${6#2.}" ];; *) false;; esac || exit %d; fi; '
    'unset mlw; case $7 in */*) [ -f "$7" ] && [ -x "$7" ];; *) command -v "$7" >/dev/null 2>&1;; esac || exit %d; '
    '[ -z "$3" ] || export PYTHONPATH="$3${PYTHONPATH:+:$PYTHONPATH}"; '
    'unset TINI_VERBOSITY MLW_WORD; . "$2"; [ "$MLW_WORD" = go ] || exit %d; unset MLW_WORD; shift 6; exec "$@"'
) % (NO_LOG, _ASK_LIBC, NO_LIBC, NO_COMMAND, NO_WORD)

# The container's first process says through them how the script ended; its exit code alone cannot tell a script
# that exits with 137 from one that was killed. Nothing else is ever written there, and no more than this is kept.
_INIT_LOG = {
    "docker": ["--log-driver", "json-file", "--log-opt", "max-size=64k", "--log-opt", "max-file=1"],
    "podman": ["--log-driver", "k8s-file", "--log-opt", "max-size=64k"],
}


# -- argument lists --------------------------------------------------------------------------------------------


def run_command(spec: Dict[str, Any], run: RunFolder, umask: int = 0o022) -> List[str]:
    """The one call between the start and the script's first line. Pure; ``--dry-run`` shows it."""
    container = spec["container"]
    environment = dict(spec["environment"])
    environment.update(container.get("environment") or {})
    path = environment.pop("PYTHONPATH", "")
    # Where NVIDIA's runtime is the engine's default, this variable gives GPUs: those that the run was granted, only.
    environment.pop("NVIDIA_VISIBLE_DEVICES", None)
    if not container.get("gpus"):
        environment["NVIDIA_VISIBLE_DEVICES"] = "void"
    words = [container["program"], "run", "--detach", "--pull", "never", "--name", container["name"], "--init"]
    words += ["--workdir", container["workdir"], *_guards(container), *_limits(container), *gpu_options(container)]
    for name, value in sorted(dict(container.get("labels") or {}, **{_OWNER: run.path}).items()):
        words += ["--label", "%s=%s" % (name, value)]
    for mount in mounts(container, run):
        words += ["--mount", mount_option(*mount)]
    for name, value in sorted(dict(environment, TINI_VERBOSITY="2").items()):
        words += ["--env", "%s=%s" % (name, value)]
    for name in container.get("inherit") or ():
        if name in os.environ:
            words += ["--env", name]
    words += container.get("options") or ()
    ours = ":".join(spec.get("path") or ())
    inside = ["-c", _SHELL, "mlw", run.log, run.word, path, "%04o" % umask, ours, container.get("libc") or ""]
    inside += spec["commands"][-1]["argv"]
    if container.get("keep_entrypoint"):
        return [*words, container["image"], "/bin/sh", *inside]
    return [*words, "--entrypoint", "/bin/sh", container["image"], *inside]


def build_command(
    container: Container,
    mounts: "List[List[str]]",
    environment: "Dict[str, str]",
    argv: "List[str]",
    network: "Optional[str]" = None,
) -> List[str]:
    """A container for a build: guarded and limited like a run's, without a GPU, removed when it ends."""
    words = [container["program"], "run", "--rm", "--pull", "never", "--name", container["name"], "--init"]
    # A run may want no network at all, or the machine's own; what a build requires is fetched the usual way.
    words += ["--workdir", environment["HOME"], *_guards(container), *_limits(dict(container, network=network))]
    for mount in mounts:
        words += ["--mount", mount_option(*mount)]
    for name, value in sorted(dict(environment, NVIDIA_VISIBLE_DEVICES="void").items()):
        words += ["--env", "%s=%s" % (name, value)]
    words += container.get("options") or ()
    return [*words, "--entrypoint", argv[0], container["image"], *argv[1:]]


def probe_command(container: Container, mounts: "Sequence[List[str]]", argv: "List[str]") -> List[str]:
    """A container that inspects the project's image: guarded like a run's, without a network, removed when it ends."""
    words = [container["program"], "run", "--rm", "--pull", "never", *_guards(container)]
    words += [*_limits({"network": "none"}), *gpu_options(container)]
    words += [] if container.get("gpus") else ["--env", "NVIDIA_VISIBLE_DEVICES=void"]
    for mount in mounts:
        words += ["--mount", mount_option(*mount)]
    words += container.get("options") or ()
    return [*words, "--entrypoint", argv[0], container["image"], *argv[1:]]


def _guards(container: Container) -> List[str]:
    words = [*_INIT_LOG[container["engine"]], "--security-opt", "no-new-privileges", "--stop-signal", "TERM"]
    words += ["--cap-drop", "ALL"]  # also for root, who needs none for folders of its own
    return [*words, "--user", container["user"]] if container.get("user") else words


def _limits(container: Container) -> List[str]:
    words = ["--pids-limit", _MOST_PROCESSES]
    for key, option in (("shm_size", "--shm-size"), ("network", "--network"), ("cpus", "--cpus")):
        if container.get(key):
            words += [option, str(container[key])]
    memory = container.get("memory")
    # Without the second, Docker lets a container swap as much again.
    return [*words, "--memory", str(memory), "--memory-swap", str(memory)] if memory else words


def gpu_options(container: Container) -> List[str]:
    gpus = container.get("gpus")
    if not gpus:
        return []
    wanted = [gpus] if isinstance(gpus, str) else list(gpus)
    if container["engine"] == "podman":  # it takes --gpus and ignores it
        return [word for gpu in wanted for word in ("--device", "nvidia.com/gpu=%s" % gpu)]
    value = "all" if "all" in wanted else '"device=%s"' % ",".join(wanted)  # quoted: it is read as CSV
    return ["--gpus", value, "--env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"]


def mounts(container: Container, run: RunFolder) -> List[List[str]]:
    """Source, target, mode; sources behind the links that were resolved when the user consented.

    Of the run folder only these: a script that could write all of it could make us follow its links.
    """
    own = [[run.work, run.work, "rw"], [run.metrics, run.metrics, "rw"], [run.log, run.log, "rw"]]
    own.append([run.word, run.word, "ro"])
    given = [list(mount) for mount in container.get("mounts") or () if list(mount) not in own]
    resolved = container.get("resolved") or ()
    return [[translate(source, resolved), target, mode] for source, target, mode in [*own, *given]]


def mount_option(source: str, target: str, mode: str) -> str:
    """``--mount``, not ``-v``: a source that is missing is an error, not a new folder that belongs to root."""
    words = ["type=bind", "source=" + source, "target=" + target] + (["readonly"] if mode == "ro" else [])
    return ",".join('"%s"' % word.replace('"', '""') if set(word) & set(',"\r\n') else word for word in words)


# -- calls -----------------------------------------------------------------------------------------------------


class Engine:
    """The engine of one container, through its program."""

    def __init__(self, container: Container) -> None:
        self.container = container
        self.name: str = container["name"]
        self.program: str = container["program"]

    def environment(self) -> Dict[str, str]:
        """Ours, but which engine is meant was decided before; the environment must not lead us to another one."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("DOCKER_", "CONTAINER_"))}
        clean.pop("MLW_FAILPOINT", None)
        if "DOCKER_CONFIG" in os.environ:
            clean["DOCKER_CONFIG"] = os.environ["DOCKER_CONFIG"]
        if self.container.get("socket"):
            variable = "CONTAINER_HOST" if self.container["engine"] == "podman" else "DOCKER_HOST"
            clean[variable] = "unix://" + self.container["socket"]
        return clean

    def begin(self, words: List[str], **more: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [encode(word) for word in words],
            stdin=more.pop("stdin", subprocess.DEVNULL),
            stdout=more.pop("stdout", subprocess.PIPE),
            stderr=more.pop("stderr", subprocess.PIPE),
            env=dict(self.environment(), **more.pop("env", {})),
            start_new_session=True,  # a signal meant for our group is not for it
            **more,
        )

    def call(self, *words: str, timeout: Optional[float] = 30.0) -> Tuple[int, str, str]:
        """Exit code, stdout, stderr. An engine that does not answer in time counts as one that is down."""
        try:
            process = self.begin([self.program, *words])
        except OSError as error:
            return 125, "", "cannot connect: %s: %s" % (self.program, error.strerror)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return 125, "", "cannot connect: no response within %g s" % (timeout or 0)
        return process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    def log_in(self, password: str) -> Tuple[Dict[str, str], str]:
        """(environment for a pull, what the engine complained of) with container["registry"]; then forget_login."""
        registry = self.container["registry"]
        forget_login(self.name)
        folder = make_login_folder(self.name)
        env = {"DOCKER_CONFIG": folder, "REGISTRY_AUTH_FILE": os.path.join(folder, "config.json")}
        words = ["login", "--username", registry.get("username") or "", "--password-stdin"]
        words += [registry["server"]] if registry.get("server") else []
        process = self.begin([self.program, *words], stdin=subprocess.PIPE, env=env)
        _, err = process.communicate(encode(password))
        return env, err.decode("utf-8", "replace") if process.returncode else ""

    def inspect(self) -> Dict[str, Any]:
        """``status``: running, exited, created …, or missing, or down; pid, code, oom, error, id, owner."""
        form = '{"id":{{json .ID}},"state":{{json .State}},"labels":{{json .Config.Labels}}}'
        code, out, err = self.call("inspect", "--type", "container", "--format", form, self.name)
        if code:
            return {"status": "missing" if is_missing_container(err) else "down", "error": err.strip()}
        return read_state(out)

    def mark(self) -> Optional[List[int]]:
        """Which engine process answers: another mark, another engine. None if none does (podman has none)."""
        path = self.container.get("socket") or "/var/run/docker.sock"
        if self.container["engine"] == "podman" or not hasattr(socket, "SO_PEERCRED"):
            return None
        try:
            with socket.socket(socket.AF_UNIX) as door:
                door.settimeout(5.0)
                door.connect(path)
                peer: int = struct.unpack("3i", door.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            if peer == 0:  # of a process table that is not ours; each engine makes its socket anew
                return [0, os.stat(path).st_ino]
        except OSError:
            return None
        if _program(peer) != "dockerd":  # systemd listens in its place
            peer = next((pid for pid in sorted(_pids()) if _program(pid) == "dockerd"), 0)
        return [peer, machine.start_time(peer) or 0] if peer else None

    def signal(self, number: int) -> bool:
        code, _, _ = self.call("kill", "--signal", str(int(number)), self.name, timeout=15.0)
        return code == 0

    def init_log(self) -> str:
        """What the container's first process said."""
        code, out, err = self.call("logs", "--tail", "20", self.name)
        return (out + err)[-8192:] if code == 0 else ""

    def remove(self) -> bool:
        """Whether it is gone."""
        code, _, err = self.call("rm", "--force", "--volumes", self.name, timeout=60.0)
        return code == 0 or is_missing_container(err)


def _pids() -> List[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _program(pid: int) -> str:
    try:
        with open("/proc/%d/comm" % pid) as file:
            return file.read().strip()
    except OSError:
        return ""


def finish(process: subprocess.Popen[bytes]) -> str:
    """Wait for its end; what it said on stderr."""
    try:
        return process.communicate(timeout=60.0)[1].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:  # an engine that hangs
        process.kill()
        return process.communicate()[1].decode("utf-8", "replace")


# -- answers ---------------------------------------------------------------------------------------------------


def read_state(text: str) -> Dict[str, Any]:
    try:
        told = parse_json(text)
        state = told["state"]
        return {
            "status": str(state.get("Status") or ""),
            "pid": int(state.get("Pid") or 0),
            "code": int(state.get("ExitCode") or 0),
            "oom": bool(state.get("OOMKilled")),
            "error": str(state.get("Error") or ""),
            "id": str(told["id"]),
            "owner": (told.get("labels") or {}).get(_OWNER),
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {"status": "down", "error": "unexpected response: %s" % text[:200]}


def read_signal(code: int, init_log: str) -> Optional[bool]:
    """Whether an exit code above 128 stands for a signal; None if the container's first process did not say."""
    if "exited with signal" in init_log:
        return True
    return False if "exited normally" in init_log else None


def is_missing_image(err: str) -> bool:
    low = err.lower()
    return "no such image" in low or "image not known" in low or "unable to find image" in low


def is_missing_container(err: str) -> bool:
    low = err.lower()
    return "no such container" in low or "no such object" in low or "no container with name" in low


def is_refused(err: str) -> bool:
    """Whether the engine does not let this user in: then it has done nothing."""
    low = err.lower()
    return "permission denied" in low and "trying to connect" in low


def make_login_folder(name: str) -> str:
    """Where a log-in to a registry is kept while an image is pulled: in memory, never on a disk.

    Every user may write there, so its name is random: no other user can have created it.
    """
    folder = os.path.join(_memory(), "%s%s" % (_login_prefix(name), os.urandom(8).hex()))
    os.mkdir(folder, 0o700)
    return folder


def forget_login(name: str) -> None:
    """Also what a killed predecessor left. A link, or a file of another user, is not ours and stays."""
    try:
        memory = _memory()
    except OSError:
        return  # so there is none
    for entry in os.listdir(memory):
        path = os.path.join(memory, entry)
        if entry.startswith(_login_prefix(name)) and _is_own_folder(path):
            try:
                remove(path)
            except OSError:
                pass  # the docker of a killed predecessor still writes there


def _memory() -> str:
    places = ("/dev/shm", os.environ.get("XDG_RUNTIME_DIR") or "")
    memory = next((one for one in places if one and os.path.isdir(one)), None)
    if memory is None:
        raise OSError("this machine has no in-memory folder (tmpfs), which a registry login needs")
    return memory


def _login_prefix(name: str) -> str:
    return "mlw-%d-%s~" % (os.getuid(), name)  # no name of a container has a tilde


def _is_own_folder(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False  # gone meanwhile
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
