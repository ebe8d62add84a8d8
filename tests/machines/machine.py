"""A Linux host reached over SSH: separate network, processes, name, boot, users, and file system, in about 0.1 s."""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
import signal
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

from tests.evidence import copy_end, copy_telling, witnesses
from tests.machines import network
from tests.machines.account import Homes, write_account
from tests.machines.engine import GROUP, Engine, responds
from tests.machines.image import IMAGE, import_image
from tests.machines.network import Switch, wait_until
from tests.machines.podman import write_rootless
from tests.machines.programs import SYSTEM_PATH, Failed, call, environment
from tests.machines.proxy import Proxy
from tests.machines.sandbox import BASE, remove_tree

REPOSITORY = Path(__file__).parents[2]
BOOT = Path(__file__).with_name("boot.sh")
SSHD = ("/usr/sbin/sshd", "-E", "/var/log/sshd.log")
IDLE = ("tini -- sleep infinity ", "sleep infinity ")


@dataclass(frozen=True)
class MachineOptions:
    """Options of a machine.

    `docker`: no; yes (the session's engine); denied (the same, but the user is not in the socket's group); own (an
    engine inside the machine that shares its lifetime and processes; 2 s more, with `load_image`);
    podman (rootless, no docker program; image by `load_image`); both (yes, and rootless podman).
    `python`: yes, no, or the path of the program for python3. `jump`: reachable only from that machine.
    `rc`: text for the startup file of the shell. `sshd`: more lines of configuration. `disk`: size of a separate file
    system for the home. `name`: host name instead of "hostN".
    """

    user: str = "ada"
    password: str | None = None
    pubkeys: bool = True
    docker: str = "no"
    shell: str = "/bin/bash"
    rc: str = ""
    python: str = "yes"
    jump: Machine | None = None
    sshd: str = ""
    disk: str | None = None
    name: str = ""


class Machine:
    """A machine. Attributes for clients: address, port, user, password, home, key, host_key_fingerprint."""

    def __init__(
        self, switch: Switch, engine: Engine | None, options: MachineOptions, shared: Homes | None = None
    ) -> None:
        """Create and boot a machine. `shared`: existing homes, which other machines have at the same path."""
        self.options, self.switch, self.engine = options, switch, engine
        self.number = switch.number()
        self.name = options.name or f"host{self.number}"
        self.folder = switch.sandbox.folder / f"host{self.number}"
        self.inner = options.jump is not None
        self.address = switch.sandbox.address(self.number, self.inner)
        self.port = 22
        self.user, self.password = options.user, options.password
        self._shares_homes = shared is not None
        self.homes = shared or Homes(self.folder / "home", {self.user: 20000 + self.number})
        self.uid, self.home, self.key = self._login_data(self.user)
        self._etc = self.folder / "etc"
        self._proxies: list[Proxy] = []
        self._is_jump_host = self._is_cut = self._is_slow = False
        self._make()
        self.power_on()
        witnesses.add(self)

    # -- data for clients -----------------------------------------------------------------------------------------
    @property
    def host_key_fingerprint(self) -> str:
        return call("ssh-keygen", "-lf", str(self._etc / "ssh" / "ssh_host_ed25519_key.pub")).stdout.split()[1]

    @property
    def host_key(self) -> str:
        """Return a line for known_hosts."""
        fields = (self._etc / "ssh" / "ssh_host_ed25519_key.pub").read_text().split()
        return f"{self.address} {fields[0]} {fields[1]}\n"

    @property
    def boot_id(self) -> str:
        return (self.folder / "boot_id").read_text().strip()

    @property
    def root(self) -> Path:
        """Return the root of the machine's file system, as seen from this computer."""
        return Path(f"/proc/{self.pid}/root")

    @property
    def log(self) -> str:
        """Return the sshd log since the last boot or reset."""
        return network.read(self.root / "var/log/sshd.log")

    def as_user(self, user: str) -> Machine:
        """Return a view of the machine whose data for clients are those of another of its users."""
        view = copy.copy(self)
        view.user, (view.uid, view.home, view.key) = user, self._login_data(user)
        return view

    # -- commands and processes in the machine --------------------------------------------------------------------
    def run(
        self, *argv: str, user: str | None = None, check: bool = True, text: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as root or as a user (without a login: no shell, no startup files)."""
        return call(*self.inside(user), *argv, check=check, text=text)

    def inside(self, user: str | None = None) -> list[str]:
        """Return the command prefix that runs a command in the machine."""
        command = ["nsenter", f"--target={self.pid}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        if user:
            command += ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env"]
            home = self.homes.home(user) if user in self.homes.users else self.home
            command += ["env", "--chdir", str(home), f"PATH={SYSTEM_PATH}"]
        return command

    def load_image(self, tag: str = IMAGE) -> str:
        """Load the small Debian image into its own engine or its user's podman (1 to 2 s)."""
        program = "podman" if self.options.docker == "podman" else "docker"
        return import_image([*self.inside(self.user), program], tag)

    def processes(self, user: str | None = "") -> dict[int, str]:
        """Map PIDs inside to command lines of that user (None: all), without sshd's own processes."""
        whose = self.user if user == "" else user
        listed = self.run("ps", "-ww", "-e", "-o", "pid=,user:32=,comm:15=,args=").stdout.splitlines()
        rows = [line.split(None, 3) for line in listed]
        return {
            int(pid): args
            for pid, name, program, args in rows
            if whose in (None, name) and program not in ("sshd", "ps", "tini") and args != "sleep infinity"
        }

    # -- the network ----------------------------------------------------------------------------------------------
    def cut(self, direction: str = "both") -> None:
        """Simulate an outage: drop packets without FIN or RST. `direction`: both, in, out."""
        rules = ["add table inet cut", "flush table inet cut"]
        for hook, device in (("input", "iifname"), ("output", "oifname")):
            if direction == "both" or hook.startswith(direction):
                rules += [
                    f"add chain inet cut {hook} {{ type filter hook {hook} priority 0; }}",
                    f'add rule inet cut {hook} {device} != "lo" drop',
                ]
        self._nft("\n".join(rules))
        self._is_cut = True

    def heal(self) -> None:
        self._nft("add table inet cut\ndelete table inet cut")
        self._is_cut = False

    def reset_connections(self) -> None:
        """Reset all its TCP connections at once."""
        self._net("ss", "--kill", "--tcp", "state", "connected")

    def slow(self, rate: str | None = "1mbit") -> None:
        """Limit the bandwidth in both directions; None removes the limit."""
        network.shape(self._netns, self._device, rate)
        self.switch.rate(self.number, self.inner, rate)
        self._is_slow = rate is not None

    def proxy(self, latency_ms: float = 0, rate: float | None = None) -> Proxy:
        """Open another port for its sshd on 127.0.0.1, with latency (one way) and bytes per second."""
        proxy = Proxy(self.address, self.port, latency_ms / 1000, rate)
        self._proxies.append(proxy)
        return proxy

    # -- its sshd -------------------------------------------------------------------------------------------------
    def stop_sshd(self, sessions: bool = False) -> None:
        """Stop the listening sshd. Existing connections stay, as with a real restart, unless `sessions` is true."""
        listener = self._listener()
        self.run("kill", str(listener))
        wait_until(lambda: not (self.root / "proc" / str(listener)).exists(), "the end of sshd")
        if sessions:
            self._signal_sessions(signal.SIGKILL)

    def start_sshd(self) -> None:
        (self.root / "run/sshd.pid").unlink(missing_ok=True)
        self.run(*SSHD)
        self._listener()

    def change_host_key(self) -> None:
        """Change the host key, as after a reinstallation or with a man in the middle."""
        self._make_host_key()
        call("cp", "-R", f"{self._etc}/ssh/.", f"{self.root}/etc/ssh/")
        self.stop_sshd()
        self.start_sshd()

    def freeze(self) -> None:
        """Stop responding to connected clients; connections stay open."""
        self._signal_sessions(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_sessions(signal.SIGCONT)

    # -- power ----------------------------------------------------------------------------------------------------
    def reboot(self) -> None:
        """Reset: kill all processes without notice, then boot with a new boot ID."""
        self.power_off()
        self.power_on()

    def restart(self) -> None:
        """Restart like the container of a rented pod: all processes are new, but the host keeps its boot ID."""
        self.power_off()
        self.power_on(self.boot_id)

    def power_off(self) -> None:
        self.cut()
        self._end()

    def keep(self, folder: Path) -> None:
        """Save sshd log, processes, and mlw files as evidence of a failed test."""
        copy_end(self.folder / "boot.log", folder)
        if self._unshare.poll() is None:
            (folder / "sshd.log").write_text(self.log)
            (folder / "processes.txt").write_text(self.run("ps", "-ewwf", check=False).stdout)
        copy_telling(self.home / ".mlw", folder / "mlw")

    def reset(self, home: Path) -> None:
        """Reset for the next test: no connections, no user processes, and a home copied from this folder."""
        if self._is_cut:
            self.heal()
        if self._is_slow:
            self.slow(None)
        self.end_processes()
        listener = network.read(self.root / "run/sshd.pid").strip()
        if not listener or not (self.root / "proc" / listener).exists():
            self.start_sshd()
        (self.root / "var/log/sshd.log").write_text("")
        for path in [*self.home.iterdir(), *(self.root / "tmp").iterdir()]:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        call("cp", "-a", f"{home}/.", str(self.home))

    def end_processes(self) -> None:
        """End user processes and connections; sshd continues to listen."""
        wait_until(lambda: not self._kill_inside_processes(), "the end of all processes")

    def _kill_inside_processes(self) -> bool:
        """Kill processes; return whether there were any besides init and the listening sshd."""
        pids = [pid for pid, name in self._inside_processes() if name and "[listener]" not in name and name not in IDLE]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(pids)

    def close(self) -> None:
        witnesses.discard(self)
        for proxy in self._proxies:
            proxy.close()
        self._end()
        remove_tree(self.folder)

    # -- creation and internals -----------------------------------------------------------------------------------
    @property
    def _device(self) -> str:
        return "eth1" if self.inner else "eth0"

    @property
    def _netns(self) -> str:
        return f"/proc/{self.pid}/ns/net"

    def _net(self, *argv: str, text: str | None = None) -> None:
        call("nsenter", f"--net={self._netns}", *argv, text=text)

    def _nft(self, rules: str) -> None:
        self._net("nft", "-f", "-", text=rules + "\n")

    def _login_data(self, user: str) -> tuple[int, Path, Path]:
        return self.homes.users[user], self.homes.home(user), self.homes.key(user)

    def _make(self) -> None:
        (self.folder / "tree").mkdir(parents=True)
        (self._etc / "ssh").mkdir(parents=True)
        if self.options.disk:
            self.home.mkdir(parents=True)
            image = self.folder / "disk"
            call("truncate", "--size", self.options.disk, str(image))
            call("mkfs.ext4", "-q", "-m", "0", str(image))
            call("mount", "-o", "loop", str(image), str(self.home))
        self._make_host_key()
        if not self._shares_homes:
            self.homes.make(self.user, self.options)
        if self.options.docker == "own":
            (self.folder / "docker").mkdir()
        if self.options.docker in ("podman", "both"):
            write_rootless(self._etc, self.user)
        write_account(self._etc, self)

    def _make_host_key(self) -> None:
        path = self._etc / "ssh" / "ssh_host_ed25519_key"
        for old in (path, path.with_suffix(".pub")):
            old.unlink(missing_ok=True)
        call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", str(path))

    def power_on(self, boot_id: str | None = None) -> None:
        (self.folder / "boot_id").write_text(f"{boot_id or uuid.uuid4()}\n")
        spaces = ("--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child=SIGKILL")
        boot_log = self.folder / "boot.log"
        with boot_log.open("wb") as log:
            self._unshare = subprocess.Popen(
                ["unshare", *spaces, "sh", str(BOOT)],
                env=environment(**self.switch.sandbox.marked, **self._settings()),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children")
        wait_until(lambda: bool(network.read(children)) or self._unshare.poll() is not None, "the first process")
        self.pid = int(network.read(children) or 0)
        if self.pid:
            self._connect_network()
            self._send_command("go")
        wait_until(lambda: "up\n" in network.read(boot_log) or self._unshare.poll() is not None, "sshd")
        if self._unshare.poll() is not None:
            raise Failed(f"{self.name} did not come up: {network.read(boot_log)}")
        self._listener()
        if self.options.docker == "own":
            wait_until(lambda: responds(self.root / "run/docker.sock"), "the machine's own engine")

    def _send_command(self, line: str) -> None:
        """Send a command to the first process. If it has failed, its output is in the log."""
        assert self._unshare.stdin
        with contextlib.suppress(BrokenPipeError):
            self._unshare.stdin.write(f"{line}\n".encode())
            self._unshare.stdin.close()

    def _connect_network(self) -> None:
        self.switch.join(self.pid, self.number, self.inner)
        if self._is_jump_host:
            self.switch.join(self.pid, self.number, inner=True)
        if self.options.jump:
            self.options.jump.become_jump_host()

    def become_jump_host(self) -> None:
        """Become a jump host: a second interface on the inner bridge, at this boot and later ones."""
        if not self._is_jump_host:
            self._is_jump_host = True
            self.switch.join(self.pid, self.number, inner=True)

    def _settings(self) -> dict[str, str]:
        options, places = self.options, ("/usr/local/bin", "/usr/bin", "/usr/local/sbin", "/usr/sbin")
        patterns = [] if options.docker in ("yes", "both", "denied", "own") else ["docker", "docker-*", "dockerd"]
        patterns += [] if options.docker in ("podman", "both") else ["podman"]
        patterns += [] if options.python == "yes" else ["python[0-9]*", "python"]
        gone = [str(path) for place in places for pattern in patterns for path in Path(place).glob(pattern)]
        return {
            "PLACE": str(self.folder),
            "ETC": str(self._etc),
            "NAME": self.name,
            "USER_HOME": str(self.homes.folder if self._shares_homes else self.home),
            "ENGINE": str(self.engine.shared) if self.engine else "",
            "DOCKERD": f"dockerd --group {GROUP} --cgroup-parent /{self.switch.sandbox.cgroup}"
            if options.docker == "own"
            else "",
            "HIDE": f"{BASE} {REPOSITORY}",
            "REMOVE": " ".join(gone),
            "PYTHON": options.python if options.python.startswith("/") else "",
        }

    def _listener(self) -> int:
        """Return the PID of the listening sshd inside. sshd writes the PID file only after it listens."""
        file = self.root / "run/sshd.pid"
        wait_until(lambda: network.read(file).strip().isdigit(), "the pid of sshd")
        return int(network.read(file))

    def _signal_sessions(self, number: int) -> None:
        for pid, name in self._inside_processes():
            if name.startswith("sshd: ") and "[listener]" not in name:
                with contextlib.suppress(ProcessLookupError):  # the process ended after it was listed
                    os.kill(pid, number)

    def _inside_processes(self) -> list[tuple[int, str]]:
        """Return the processes of the machine: PIDs as seen from this computer, and command lines."""
        space = os.readlink(f"/proc/{self.pid}/ns/pid")
        processes = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.readlink(entry / "ns/pid") == space:
                    name = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    processes.append((int(entry.name), name))
            except OSError:
                continue
        return processes

    def _end(self) -> None:
        if self._unshare.poll() is None:
            os.kill(self.pid, signal.SIGKILL)  # The first process: all others inside end with it.
            self._unshare.wait(30)
        self.switch.leave(self.number)
