"""Docker and podman: command lines, calls, and parsing of their output.

Only the command-line programs are used, never the HTTP API, because they apply the user's contexts
and logins.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import subprocess

from .bind_mounts import translate
from .launcher import encode_argument
from .shared import machine
from .shared.folder_tree import remove
from .shared.layout import RunFolder
from .shared.untrusted_json import parse_json

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple

    Container = Dict[str, Any]

_OWNER_LABEL = "mlw.folder"  # label that contains the container's run folder

# Maximum number of processes and threads. A larger number indicates a fork bomb, not a training run.
_MAX_PROCESSES = "32768"

# Shell script that starts the user's command in the container. $1: log, $2: FIFO of the start signal, $3: prefix for
# PYTHONPATH, $4: umask, $5: prefix for PATH, $6: glibc version that the environment needs. It writes to the log file
# itself, so that nothing is lost when the engine dies. All its checks come before the start signal: any exit code after
# the signal is the script's own. Without the signal the script never runs. The glibc version is checked first, because
# later a mismatch looks like a script failure. Without getconf, the environment's Python reports it, if it starts.
NO_LOG, NO_COMMAND, NO_START_SIGNAL, NO_LIBC = 98, 127, 99, 97
_LIBC_SCRIPT = "import os; print(os.confstr('CS_GNU_LIBC_VERSION'))"
_SHELL_SCRIPT = (
    'umask "$4"; true >>"$1" || exit %d; exec >>"$1" 2>&1 </dev/null; '
    '[ -z "$5" ] || export PATH="$5:$PATH"; '
    'if [ -n "$6" ]; then mlw=$(getconf GNU_LIBC_VERSION 2>/dev/null || "$5/python" -I -S -c "%s" 2>/dev/null); '
    'case $mlw in "glibc 2."*) mlw=${mlw#glibc 2.}; [ "${mlw%%%%.*}" -ge "${6#2.}" ];; *) false;; esac || exit %d; fi; '
    'unset mlw; case $7 in */*) [ -f "$7" ] && [ -x "$7" ];; *) command -v "$7" >/dev/null 2>&1;; esac || exit %d; '
    '[ -z "$3" ] || export PYTHONPATH="$3${PYTHONPATH:+:$PYTHONPATH}"; '
    'unset TINI_VERBOSITY MLW_WORD; . "$2"; [ "$MLW_WORD" = go ] || exit %d; unset MLW_WORD; shift 6; exec "$@"'
) % (NO_LOG, _LIBC_SCRIPT, NO_LIBC, NO_COMMAND, NO_START_SIGNAL)

# Options for the container's log, in which the first process records how the script ended. The exit code alone cannot
# distinguish a script that exits with 137 from one that was killed. Nothing else is written to this log.
_INIT_LOG_OPTIONS = {
    "docker": ["--log-driver", "json-file", "--log-opt", "max-size=64k", "--log-opt", "max-file=1"],
    "podman": ["--log-driver", "k8s-file", "--log-opt", "max-size=64k"],
}


# -- argument lists --------------------------------------------------------------------------------------------


def run_command(spec: Dict[str, Any], run: RunFolder, umask: int = 0o022) -> List[str]:
    """Return the command that starts a run's container. This is a pure function; ``--dry-run`` prints its result."""
    container = spec["container"]
    environment = dict(spec["environment"])
    environment.update(container.get("environment") or {})
    python_path = environment.pop("PYTHONPATH", "")
    # If NVIDIA's runtime is the engine's default, this variable would expose GPUs that the run was not granted.
    environment.pop("NVIDIA_VISIBLE_DEVICES", None)
    if not container.get("gpus"):
        environment["NVIDIA_VISIBLE_DEVICES"] = "void"
    arguments = [container["program"], "run", "--detach", "--pull", "never", "--name", container["name"], "--init"]
    arguments += ["--workdir", container["workdir"], *_security_options(container)]
    arguments += [*_limit_options(container), *gpu_options(container)]
    for name, value in sorted(dict(container.get("labels") or {}, **{_OWNER_LABEL: run.path}).items()):
        arguments += ["--label", "%s=%s" % (name, value)]
    for mount in list_mounts(container, run):
        arguments += ["--mount", mount_option(*mount)]
    for name, value in sorted(dict(environment, TINI_VERBOSITY="2").items()):
        arguments += ["--env", "%s=%s" % (name, value)]
    for name in container.get("inherit") or ():
        if name in os.environ:
            arguments += ["--env", name]
    arguments += container.get("options") or ()
    path_prefix = ":".join(spec.get("path") or ())
    shell_arguments = ["-c", _SHELL_SCRIPT, "mlw", run.log, run.start_fifo, python_path]
    shell_arguments += ["%04o" % umask, path_prefix, container.get("libc") or ""]
    shell_arguments += spec["commands"][-1]["argv"]
    if container.get("keep_entrypoint"):
        return [*arguments, container["image"], "/bin/sh", *shell_arguments]
    return [*arguments, "--entrypoint", "/bin/sh", container["image"], *shell_arguments]


def build_command(
    container: Container,
    mounts: "List[List[str]]",
    environment: "Dict[str, str]",
    argv: "List[str]",
    network: "Optional[str]" = None,
) -> List[str]:
    """Return the command for a build container.

    It has the same restrictions as a run, but no GPU, and is removed when it exits.
    """
    arguments = [container["program"], "run", "--rm", "--pull", "never", "--name", container["name"], "--init"]
    # A run may use no network, or the host's network; a build fetches its packages over the default network.
    arguments += ["--workdir", environment["HOME"], *_security_options(container)]
    arguments += _limit_options(dict(container, network=network))
    for mount in mounts:
        arguments += ["--mount", mount_option(*mount)]
    for name, value in sorted(dict(environment, NVIDIA_VISIBLE_DEVICES="void").items()):
        arguments += ["--env", "%s=%s" % (name, value)]
    arguments += container.get("options") or ()
    return [*arguments, "--entrypoint", argv[0], container["image"], *argv[1:]]


def probe_command(container: Container, mounts: "Sequence[List[str]]", argv: "List[str]") -> List[str]:
    """Return the command for a container that inspects an image.

    It has the same restrictions as a run, and no network.
    """
    arguments = [container["program"], "run", "--rm", "--pull", "never", *_security_options(container)]
    arguments += [*_limit_options({"network": "none"}), *gpu_options(container)]
    arguments += [] if container.get("gpus") else ["--env", "NVIDIA_VISIBLE_DEVICES=void"]
    for mount in mounts:
        arguments += ["--mount", mount_option(*mount)]
    arguments += container.get("options") or ()
    return [*arguments, "--entrypoint", argv[0], container["image"], *argv[1:]]


def _security_options(container: Container) -> List[str]:
    arguments = [*_INIT_LOG_OPTIONS[container["engine"]], "--security-opt", "no-new-privileges"]
    arguments += ["--stop-signal", "TERM", "--cap-drop", "ALL"]  # even root needs no capabilities in its own folders
    return [*arguments, "--user", container["user"]] if container.get("user") else arguments


def _limit_options(container: Container) -> List[str]:
    arguments = ["--pids-limit", _MAX_PROCESSES]
    for key, option in (("shm_size", "--shm-size"), ("network", "--network"), ("cpus", "--cpus")):
        if container.get(key):
            arguments += [option, str(container[key])]
    memory = container.get("memory")
    # Without --memory-swap, Docker lets a container use the same amount of swap in addition to memory.
    return [*arguments, "--memory", str(memory), "--memory-swap", str(memory)] if memory else arguments


def gpu_options(container: Container) -> List[str]:
    gpus = container.get("gpus")
    if not gpus:
        return []
    devices = [gpus] if isinstance(gpus, str) else list(gpus)
    if container["engine"] == "podman":  # podman accepts --gpus but ignores it
        return [argument for gpu in devices for argument in ("--device", "nvidia.com/gpu=%s" % gpu)]
    value = "all" if "all" in devices else '"device=%s"' % ",".join(devices)  # quoted, because Docker parses it as CSV
    return ["--gpus", value, "--env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"]


def list_mounts(container: Container, run: RunFolder) -> List[List[str]]:
    """Return source, target, and mode of each mount. Sources are resolved to the paths that the user allowed.

    Only these parts of the run folder are mounted. A script with write access to the entire folder
    could plant links for mlw to follow.
    """
    run_mounts = [[path, path, "rw"] for path in (run.work, run.metrics, run.checkpoints, run.log)]
    run_mounts.append([run.start_fifo, run.start_fifo, "ro"])
    configured = [list(mount) for mount in container.get("mounts") or () if list(mount) not in run_mounts]
    resolved = container.get("resolved") or ()
    return [[translate(source, resolved), target, mode] for source, target, mode in [*run_mounts, *configured]]


def mount_option(source: str, target: str, mode: str) -> str:
    """Return the value of ``--mount``.

    Unlike ``-v``, ``--mount`` reports a missing source instead of creating a folder as root.
    """
    fields = ["type=bind", "source=" + source, "target=" + target] + (["readonly"] if mode == "ro" else [])
    return ",".join('"%s"' % field.replace('"', '""') if set(field) & set(',"\r\n') else field for field in fields)


# -- calls -----------------------------------------------------------------------------------------------------


class Engine:
    """A client for the engine of one container, which calls the engine's command-line program."""

    def __init__(self, container: Container) -> None:
        self.container = container
        self.name: str = container["name"]
        self.program: str = container["program"]

    def environment(self) -> Dict[str, str]:
        """Return this process's environment without variables that select another engine.

        The engine has already been chosen.
        """
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith(("DOCKER_", "CONTAINER_"))
        }
        variables.pop("MLW_FAILPOINT", None)
        if "DOCKER_CONFIG" in os.environ:
            variables["DOCKER_CONFIG"] = os.environ["DOCKER_CONFIG"]
        if self.container.get("socket"):
            variable = "CONTAINER_HOST" if self.container["engine"] == "podman" else "DOCKER_HOST"
            variables[variable] = "unix://" + self.container["socket"]
        return variables

    def start_process(self, arguments: List[str], **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [encode_argument(argument) for argument in arguments],
            stdin=options.pop("stdin", subprocess.DEVNULL),
            stdout=options.pop("stdout", subprocess.PIPE),
            stderr=options.pop("stderr", subprocess.PIPE),
            env=dict(self.environment(), **options.pop("env", {})),
            start_new_session=True,  # signals to our process group must not reach it
            **options,
        )

    def call(self, *arguments: str, timeout: Optional[float] = 30.0) -> Tuple[int, str, str]:
        """Run a command and return its exit code, stdout, and stderr.

        An engine that does not respond in time counts as down.
        """
        try:
            process = self.start_process([self.program, *arguments])
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
        """Log in to ``container["registry"]``; return the environment for a pull and an error message.

        Call ``remove_login`` afterwards.
        """
        registry = self.container["registry"]
        remove_login(self.name)
        folder = make_login_folder(self.name)
        env = {"DOCKER_CONFIG": folder, "REGISTRY_AUTH_FILE": os.path.join(folder, "config.json")}
        arguments = ["login", "--username", registry.get("username") or "", "--password-stdin"]
        arguments += [registry["server"]] if registry.get("server") else []
        process = self.start_process([self.program, *arguments], stdin=subprocess.PIPE, env=env)
        _, err = process.communicate(encode_argument(password))
        return env, err.decode("utf-8", "replace") if process.returncode else ""

    def inspect(self) -> Dict[str, Any]:
        """Return the container's state as in ``parse_state``. If inspection fails, ``status`` is missing or down."""
        template = '{"id":{{json .ID}},"state":{{json .State}},"labels":{{json .Config.Labels}}}'
        code, out, err = self.call("inspect", "--type", "container", "--format", template, self.name)
        if code:
            return {"status": "missing" if is_missing_container(err) else "down", "error": err.strip()}
        return parse_state(out)

    def identity(self) -> Optional[List[int]]:
        """Return an ID of the engine process that responds, or None.

        The ID changes when the engine restarts. Podman has no engine process.
        """
        path = self.container.get("socket") or "/var/run/docker.sock"
        if self.container["engine"] == "podman" or not hasattr(socket, "SO_PEERCRED"):
            return None
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(5.0)
                connection.connect(path)
                peer: int = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            if peer == 0:  # in another PID namespace: use the inode, because each engine process creates a new socket
                return [0, os.stat(path).st_ino]
        except OSError:
            return None
        if _program_name(peer) != "dockerd":  # systemd listens on the socket
            peer = next((pid for pid in sorted(_list_pids()) if _program_name(pid) == "dockerd"), 0)
        return [peer, machine.start_time(peer) or 0] if peer else None

    def signal(self, number: int) -> bool:
        code, _, _ = self.call("kill", "--signal", str(int(number)), self.name, timeout=15.0)
        return code == 0

    def init_log(self) -> str:
        """Return the log of the container's first process."""
        code, out, err = self.call("logs", "--tail", "20", self.name)
        return (out + err)[-8192:] if code == 0 else ""

    def remove(self) -> bool:
        """Remove the container. Return whether it no longer exists."""
        code, _, err = self.call("rm", "--force", "--volumes", self.name, timeout=60.0)
        return code == 0 or is_missing_container(err)


def _list_pids() -> List[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _program_name(pid: int) -> str:
    try:
        with open("/proc/%d/comm" % pid) as file:
            return file.read().strip()
    except OSError:
        return ""


def wait_for_exit(process: subprocess.Popen[bytes]) -> str:
    """Wait for the process to exit and return its stderr."""
    try:
        return process.communicate(timeout=60.0)[1].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:  # the engine hangs
        process.kill()
        return process.communicate()[1].decode("utf-8", "replace")


# -- output ----------------------------------------------------------------------------------------------------


def parse_state(text: str) -> Dict[str, Any]:
    try:
        data = parse_json(text)
        state = data["state"]
        return {
            "status": str(state.get("Status") or ""),
            "pid": int(state.get("Pid") or 0),
            "code": int(state.get("ExitCode") or 0),
            "oom": bool(state.get("OOMKilled")),
            "error": str(state.get("Error") or ""),
            "id": str(data["id"]),
            "owner": (data.get("labels") or {}).get(_OWNER_LABEL),
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {"status": "down", "error": "unexpected response: %s" % text[:200]}


def ended_by_signal(code: int, init_log: str) -> Optional[bool]:
    """Return whether an exit code above 128 means a signal; None if the init log does not show it."""
    if "exited with signal" in init_log:
        return True
    return False if "exited normally" in init_log else None


def is_missing_image(err: str) -> bool:
    lowered = err.lower()
    return "no such image" in lowered or "image not known" in lowered or "unable to find image" in lowered


def is_missing_container(err: str) -> bool:
    lowered = err.lower()
    return "no such container" in lowered or "no such object" in lowered or "no container with name" in lowered


def is_refused(err: str) -> bool:
    """Return whether the engine refused this user's connection and therefore did nothing."""
    lowered = err.lower()
    return "permission denied" in lowered and "trying to connect" in lowered


def make_login_folder(name: str) -> str:
    """Create a folder for a registry login during a pull. It is in memory, never on disk.

    Every user can write to the parent folder, so the name is random: no other user can have created it.
    """
    folder = os.path.join(_memory_folder(), "%s%s" % (_login_prefix(name), os.urandom(8).hex()))
    os.mkdir(folder, 0o700)
    return folder


def remove_login(name: str) -> None:
    """Remove login folders, including those of a killed predecessor. Links and folders of other users stay."""
    try:
        memory = _memory_folder()
    except OSError:
        return  # a login needs an in-memory folder, so there is none to remove
    for entry in os.listdir(memory):
        path = os.path.join(memory, entry)
        if entry.startswith(_login_prefix(name)) and _is_own_folder(path):
            try:
                remove(path)
            except OSError:
                pass  # a killed predecessor's docker process is still writing there


def _memory_folder() -> str:
    candidates = ("/dev/shm", os.environ.get("XDG_RUNTIME_DIR") or "")
    memory = next((path for path in candidates if path and os.path.isdir(path)), None)
    if memory is None:
        raise OSError("this machine has no in-memory folder (tmpfs), which a registry login needs")
    return memory


def _login_prefix(name: str) -> str:
    return "mlw-%d-%s~" % (os.getuid(), name)  # container names cannot contain a tilde


def _is_own_folder(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False  # already removed
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
