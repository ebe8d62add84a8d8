"""A Linux host reached by SSH: own network, processes, name, boot, users and file system, in about 0.1 s."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from tests.evidence import copy_end, copy_telling, witnesses
from tests.machines import network
from tests.machines.account import write_account, write_home
from tests.machines.engine import GROUP, Engine, answers
from tests.machines.image import IMAGE, import_image
from tests.machines.network import Switch, wait_until
from tests.machines.place import BASE, remove_tree
from tests.machines.podman import write_rootless
from tests.machines.programs import SYSTEM_PATH, Failed, call, environment
from tests.machines.proxy import Proxy

REPOSITORY = Path(__file__).parents[2]
BOOT = Path(__file__).with_name("boot.sh")
SSHD = ("/usr/sbin/sshd", "-E", "/var/log/sshd.log")
IDLE = ("tini -- sleep infinity ", "sleep infinity ")


@dataclass(frozen=True)
class Wanted:
    """What kind of machine.

    `docker`: no; yes (the session's engine); denied (that one, but the user is not in the socket's group); own (an
    engine that lives and dies with the machine and whose processes are seen there; 2 s more, with `load_image`);
    podman (rootless, no docker program; image by `load_image`); both (yes, and rootless podman).
    `python`: yes, no, or the path of the one that is python3 there. `jump`: reachable only from that machine.
    `rc`: text for the start file of the shell. `sshd`: further lines of configuration. `disk`: size of an own file
    system for the home.
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
    groups: tuple[str, ...] = field(default=())


class Machine:
    """Attributes for a client: address, port, user, password, home, key, host_key_fingerprint."""

    def __init__(self, switch: Switch, engine: Engine | None, wanted: Wanted) -> None:
        self.wanted, self.switch, self.engine = wanted, switch, engine
        self.number = switch.number()
        self.name = f"host{self.number}"
        self.folder = switch.place.folder / self.name
        self.inner = wanted.jump is not None
        self.address = switch.place.address(self.number, self.inner)
        self.port = 22
        self.user, self.password = wanted.user, wanted.password
        self.uid = 20000 + self.number
        self.home = self.folder / "home" / self.user
        self.key = self.folder / "key"
        self._etc = self.folder / "etc"
        self._proxies: list[Proxy] = []
        self._leads_on = self._is_cut = self._is_slow = False
        self._make()
        self.power_on()
        witnesses.add(self)

    # -- what a client needs to know ------------------------------------------------------------------------------
    @property
    def host_key_fingerprint(self) -> str:
        return call("ssh-keygen", "-lf", str(self._etc / "ssh" / "ssh_host_ed25519_key.pub")).stdout.split()[1]

    @property
    def host_key(self) -> str:
        """A line for known_hosts."""
        words = (self._etc / "ssh" / "ssh_host_ed25519_key.pub").read_text().split()
        return f"{self.address} {words[0]} {words[1]}\n"

    @property
    def boot_id(self) -> str:
        return (self.folder / "boot_id").read_text().strip()

    @property
    def root(self) -> Path:
        """Its file system, seen from here."""
        return Path(f"/proc/{self.pid}/root")

    @property
    def log(self) -> str:
        """What its sshd wrote since the boot."""
        return network.read(self.root / "var/log/sshd.log")

    # -- inside ---------------------------------------------------------------------------------------------------
    def run(
        self, *argv: str, user: str | None = None, check: bool = True, text: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command inside, as root or as a user (without a login: no shell, no start files)."""
        return call(*self.inside(user), *argv, check=check, text=text)

    def inside(self, user: str | None = None) -> list[str]:
        """What to put before a command so that it runs there."""
        words = ["nsenter", f"--target={self.pid}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        if user:
            words += ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env"]
            words += ["env", "--chdir", str(self.home), f"PATH={SYSTEM_PATH}"]
        return words

    def load_image(self, tag: str = IMAGE) -> str:
        """The small Debian image into its own engine or its user's podman (1 to 2 s)."""
        program = "podman" if self.wanted.docker == "podman" else "docker"
        return import_image([*self.inside(self.user), program], tag)

    def processes(self, user: str | None = "") -> dict[int, str]:
        """Pid inside → command line, of that user (None: all), without what sshd itself runs."""
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
        """Packets are lost without a word: nobody gets a FIN or RST. `direction`: both, in, out."""
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
        """All its TCP connections end at once; the other side gets a reset."""
        self._net("ss", "--kill", "--tcp", "state", "connected")

    def slow(self, rate: str | None = "1mbit") -> None:
        """Both ways; None lifts it."""
        network.shape(self._netns, self._device, rate)
        self.switch.rate(self.number, self.inner, rate)
        self._is_slow = rate is not None

    def proxy(self, latency_ms: float = 0, rate: float | None = None) -> Proxy:
        """Another door to its sshd, on 127.0.0.1, with latency (one way) and bytes a second."""
        proxy = Proxy(self.address, self.port, latency_ms / 1000, rate)
        self._proxies.append(proxy)
        return proxy

    # -- its sshd -------------------------------------------------------------------------------------------------
    def stop_sshd(self, sessions: bool = False) -> None:
        """No new connections; those that are there stay, as with a real restart, unless `sessions`."""
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
        """As after a new installation, or with somebody in between."""
        self._make_host_key()
        call("cp", "-R", f"{self._etc}/ssh/.", f"{self.root}/etc/ssh/")
        self.stop_sshd()
        self.start_sshd()

    def freeze(self) -> None:
        """Whoever is connected gets no more answers; the connection stays."""
        self._signal_sessions(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_sessions(signal.SIGCONT)

    # -- power ----------------------------------------------------------------------------------------------------
    def reboot(self) -> None:
        """A reset button: all processes gone without a word to anybody; then a new boot with a new id."""
        self.power_off()
        self.power_on()

    def restart(self) -> None:
        """As the container that a rented pod is: all processes gone, then new ones, in the same boot of its host."""
        self.power_off()
        self.power_on(self.boot_id)

    def power_off(self) -> None:
        self.cut()
        self._end()

    def keep(self, folder: Path) -> None:
        """For whoever asks why a test failed: its sshd, its processes, and what mlw has there."""
        copy_end(self.folder / "boot.log", folder)
        if self._unshare.poll() is None:
            (folder / "sshd.log").write_text(self.log)
            (folder / "processes.txt").write_text(self.run("ps", "-ewwf", check=False).stdout)
        copy_telling(self.home / ".mlw", folder / "mlw")

    def renew(self, home: Path) -> None:
        """For the next test: no connection, no process of its user, and its home a copy of this folder."""
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
        """Connections, too; sshd goes on to listen."""
        wait_until(lambda: not self._kill_insiders(), "the end of all processes")

    def _kill_insiders(self) -> bool:
        """Whether there were any but the first process and the one that waits for connections."""
        pids = [pid for pid, name in self._insiders() if name and "[listener]" not in name and name not in IDLE]
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

    # -- making ---------------------------------------------------------------------------------------------------
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

    def _make(self) -> None:
        self.home.mkdir(parents=True)
        (self.folder / "tree").mkdir()
        (self._etc / "ssh").mkdir(parents=True)
        if self.wanted.disk:
            image = self.folder / "disk"
            call("truncate", "--size", self.wanted.disk, str(image))
            call("mkfs.ext4", "-q", "-m", "0", str(image))
            call("mount", "-o", "loop", str(image), str(self.home))
        self._make_host_key()
        call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(self.key))
        if self.wanted.docker == "own":
            (self.folder / "docker").mkdir()
        if self.wanted.docker in ("podman", "both"):
            write_rootless(self._etc, self.user)
        write_account(self._etc, self)
        write_home(self)

    def _make_host_key(self) -> None:
        path = self._etc / "ssh" / "ssh_host_ed25519_key"
        for old in (path, path.with_suffix(".pub")):
            old.unlink(missing_ok=True)
        call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", str(path))

    def power_on(self, boot_id: str | None = None) -> None:
        (self.folder / "boot_id").write_text(f"{boot_id or uuid.uuid4()}\n")
        spaces = ("--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child=SIGKILL")
        said = self.folder / "boot.log"
        with said.open("wb") as log:
            self._unshare = subprocess.Popen(
                ["unshare", *spaces, "sh", str(BOOT)],
                env=environment(**self.switch.place.marked, **self._settings()),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children")
        wait_until(lambda: bool(network.read(children)) or self._unshare.poll() is not None, "the first process")
        self.pid = int(network.read(children) or 0)
        if self.pid:
            self._wire()
            self._tell("go")
        wait_until(lambda: "up\n" in network.read(said) or self._unshare.poll() is not None, "sshd")
        if self._unshare.poll() is not None:
            raise Failed(f"{self.name} did not come up: {network.read(said)}")
        self._listener()
        if self.wanted.docker == "own":
            wait_until(lambda: answers(self.root / "run/docker.sock"), "the machine's own engine")

    def _tell(self, line: str) -> None:
        """To the first process; one that failed is not there any more, and its words are in the log."""
        assert self._unshare.stdin
        with contextlib.suppress(BrokenPipeError):
            self._unshare.stdin.write(f"{line}\n".encode())
            self._unshare.stdin.close()

    def _wire(self) -> None:
        self.switch.join(self.pid, self.number, self.inner)
        if self._leads_on:
            self.switch.join(self.pid, self.number, inner=True)
        if self.wanted.jump:
            self.wanted.jump.lead_on()

    def lead_on(self) -> None:
        """Be a jump host: a second wire, to the inner bridge, at this boot and later ones."""
        if not self._leads_on:
            self._leads_on = True
            self.switch.join(self.pid, self.number, inner=True)

    def _settings(self) -> dict[str, str]:
        wanted, places = self.wanted, ("/usr/local/bin", "/usr/bin", "/usr/local/sbin", "/usr/sbin")
        patterns = [] if wanted.docker in ("yes", "both", "denied", "own") else ["docker", "docker-*", "dockerd"]
        patterns += [] if wanted.docker in ("podman", "both") else ["podman"]
        patterns += [] if wanted.python == "yes" else ["python[0-9]*", "python"]
        gone = [str(path) for place in places for pattern in patterns for path in Path(place).glob(pattern)]
        return {
            "PLACE": str(self.folder),
            "ETC": str(self._etc),
            "NAME": self.name,
            "USER_HOME": str(self.home),
            "ENGINE": str(self.engine.shared) if self.engine else "",
            "DOCKERD": f"dockerd --group {GROUP} --cgroup-parent /{self.switch.place.cgroup}"
            if wanted.docker == "own"
            else "",
            "HIDE": f"{BASE} {REPOSITORY}",
            "REMOVE": " ".join(gone),
            "PYTHON": wanted.python if wanted.python.startswith("/") else "",
        }

    def _listener(self) -> int:
        """The pid inside. sshd goes into the background first, then listens, then writes it."""
        file = self.root / "run/sshd.pid"
        wait_until(lambda: network.read(file).strip().isdigit(), "the pid of sshd")
        return int(network.read(file))

    def _signal_sessions(self, number: int) -> None:
        for pid, name in self._insiders():
            if name.startswith("sshd: ") and "[listener]" not in name:
                with contextlib.suppress(ProcessLookupError):  # it ended by itself since it was listed
                    os.kill(pid, number)

    def _insiders(self) -> list[tuple[int, str]]:
        """Pid as seen from here, command line."""
        space = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.readlink(entry / "ns/pid") == space:
                    name = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found.append((int(entry.name), name))
            except OSError:
                continue
        return found

    def _end(self) -> None:
        if self._unshare.poll() is None:
            os.kill(self.pid, signal.SIGKILL)  # The first process: all others in there go with it.
            self._unshare.wait(30)
        self.switch.leave(self.number)
