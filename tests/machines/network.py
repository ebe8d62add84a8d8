"""The test network: a switch in a separate network namespace, connected to this computer by one interface.

That interface is the only change to this computer's network, so existing engines and firewalls do not interfere.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.machines.programs import call, environment
from tests.machines.sandbox import Sandbox

GATEWAY, ENGINE, FIRST_MACHINE = 1, 2, 10


class Namespace:
    """A network namespace, held by a sleeping process."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sleep", "infinity"],
            env=environment(**sandbox.marked),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self._holder.pid
        self.path = f"/proc/{self.pid}/ns/net"
        current = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(self.path) != current, "a network namespace")
        self.ip("link set lo up")

    def ip(self, *lines: str) -> None:
        ip_in(self.path, *lines)

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()


class Switch:
    """Two bridges: `outer`, where this computer is .1, and `inner`, which only jump hosts reach."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._namespace = Namespace(sandbox)
        self._next = FIRST_MACHINE
        call(
            "ip",
            "link",
            "add",
            sandbox.interface,
            "type",
            "veth",
            "peer",
            "name",
            "uplink",
            "netns",
            str(self._namespace.pid),
        )
        self._namespace.ip(
            "link add outer type bridge",
            "link add inner type bridge",
            "link set outer up",
            "link set inner up",
            "link set uplink master outer up",
        )
        call("ip", "address", "add", f"{sandbox.address(GATEWAY)}/24", "dev", sandbox.interface)
        call("ip", "link", "set", sandbox.interface, "up")
        # Otherwise packets for a machine behind a jump host would be sent to the Internet.
        call("ip", "route", "add", f"{sandbox.address(0, inner=True)}/24", "dev", sandbox.interface)

    def number(self) -> int:
        self._next += 1
        return self._next

    def join(self, pid: int, last: int, inner: bool = False) -> None:
        """Connect the namespace of that process: eth0 on the outer bridge or eth1 on the inner one."""
        port, device = (f"i{last}", "eth1") if inner else (f"o{last}", "eth0")
        netns, bridge = f"/proc/{pid}/ns/net", "inner" if inner else "outer"
        # The same MAC address at every boot, so that ARP caches stay valid.
        hardware = f"02:00:0a:{214 if inner else 213:02x}:{self.sandbox.number:02x}:{last:02x}"
        self._namespace.ip(f"link add {port} type veth peer name {device} address {hardware} netns {pid}")
        self._namespace.ip(f"link set {port} master {bridge} up")
        ip_in(
            netns,
            "link set lo up",
            f"address add {self.sandbox.address(last, inner)}/24 dev {device}",
            f"link set {device} up",
            *([] if inner else [f"route add default via {self.sandbox.address(GATEWAY)}"]),
        )

    def leave(self, last: int) -> None:
        """Remove the interfaces immediately; otherwise they remain for a while after their namespace ends."""
        for port in (f"o{last}", f"i{last}"):
            call("nsenter", f"--net={self._namespace.path}", "ip", "link", "delete", port, check=False)

    def rate(self, last: int, inner: bool, shaping: str | None) -> None:
        """Shape traffic towards a machine (traffic from it is shaped at its own end)."""
        shape(self._namespace.path, f"{'i' if inner else 'o'}{last}", shaping)

    def close(self) -> None:
        call("ip", "link", "delete", self.sandbox.interface, check=False)
        self._namespace.close()


def ip_in(netns: str, *lines: str) -> None:
    call("nsenter", f"--net={netns}", "ip", "-batch", "-", text="\n".join(lines) + "\n")


def shape(netns: str, device: str, shaping: str | None) -> None:
    tc = ("nsenter", f"--net={netns}", "tc", "qdisc")
    if shaping is None:
        call(*tc, "delete", "dev", device, "root", check=False)
    else:
        call(*tc, "replace", "dev", device, "root", "tbf", "rate", shaping, "burst", "16kb", "latency", "400ms")


def wait_until(ready: Callable[[], bool], what: str, seconds: float = 30) -> None:
    """Poll every few milliseconds until the condition holds; expensive checks take at most half of the time."""
    start = looked = time.monotonic()
    while not ready():
        now = time.monotonic()
        if now > start + seconds:
            raise TimeoutError(f"{what} is not there after {seconds:.0f} s")
        time.sleep(max(0.004, now - looked))
        looked = time.monotonic()


def read(path: Path) -> str:
    """Return the text of a file, or "" if the file or, below /proc, its process no longer exists."""
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
