"""Initial contents of a machine's /etc and its users' homes."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.machines.engine import GROUP
from tests.machines.programs import call, crypted

if TYPE_CHECKING:
    from tests.machines.machine import Machine, MachineOptions

START_FILES = {
    "bash": [".bashrc", ".profile"],
    "dash": [".profile"],
    "sh": [".profile"],
    "zsh": [".zshenv"],
    "fish": [".config/fish/config.fish"],
    "tcsh": [".cshrc"],
}


@dataclass(frozen=True)
class Homes:
    """Login users with their UIDs, and the folder with their homes. The machines of a cluster share one."""

    folder: Path
    users: dict[str, int]

    def home(self, user: str) -> Path:
        return self.folder / user

    def key(self, user: str) -> Path:
        """Return the private key with which the user logs in."""
        return self.folder.with_name(f"key-{user}")

    def make(self, user: str, options: MachineOptions) -> None:
        """Write the user's key pair and home."""
        call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(self.key(user)))
        self.home(user).mkdir(parents=True, exist_ok=True)
        _write_home(self.home(user), self.users[user], options, self.key(user).with_suffix(".pub"))


def write_account(etc: Path, machine: Machine) -> None:
    """Write the files of /etc: users and groups with the login users, host names, and the sshd configuration."""
    homes, options = machine.homes, machine.options
    accounts = [
        f"{user}:x:{uid}:{uid}:{user.title()}:{homes.home(user)}:{options.shell}\n" for user, uid in homes.users.items()
    ]
    (etc / "passwd").write_text(Path("/etc/passwd").read_text() + "".join(accounts))
    members = ",".join(homes.users) if options.docker in ("yes", "both", "own") else ""
    (etc / "group").write_text(
        "".join(line for line in Path("/etc/group").read_text().splitlines(True) if not line.startswith("docker:"))
        + "".join(f"{user}:x:{uid}:\n" for user, uid in homes.users.items())
        + f"docker:x:{GROUP}:{members}\n"
    )
    secret = crypted(options.password, "$6$rounds=1000$mlw$") if options.password is not None else "*"
    shadow = "".join(f"{name}:*:19000:0:99999:7:::\n" for name in ("root", "daemon", "sshd", "nobody"))
    passwords = "".join(f"{user}:{secret}:19000:0:99999:7:::\n" for user in homes.users)
    (etc / "shadow").write_text(shadow + passwords)
    (etc / "hostname").write_text(f"{machine.name}\n")
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n{machine.address} {machine.name}\n")
    (etc / "resolv.conf").write_text("")  # No DNS lookups: each would take ten seconds to fail.
    (etc / "machine-id").write_text(f"{uuid.uuid4().hex}\n")
    (etc / "ssh" / "sshd_config").write_text(_sshd_config(machine))


def _sshd_config(machine: Machine) -> str:
    options = machine.options
    return (
        f"{options.sshd}\n"  # First, because sshd uses the first value of an option.
        "HostKey /etc/ssh/ssh_host_ed25519_key\n"
        f"ListenAddress {machine.address}\n"
        f"PasswordAuthentication {'no' if options.password is None else 'yes'}\n"
        f"PubkeyAuthentication {'yes' if options.pubkeys else 'no'}\n"
        "KbdInteractiveAuthentication no\n"
        "UsePAM no\n"
        "UseDNS no\n"
        "KexAlgorithms curve25519-sha256\n"  # sntrup761 takes two thirds of a connection's CPU time
        "PrintMotd no\n"
        "Subsystem sftp internal-sftp\n"
    )


def _write_home(home: Path, uid: int, options: MachineOptions, public_key: Path) -> None:
    home.chmod(0o700)
    (home / ".ssh").mkdir(mode=0o700)
    if options.pubkeys:
        keys = home / ".ssh" / "authorized_keys"
        keys.write_text(public_key.read_text())
        keys.chmod(0o600)
    if options.rc:
        for name in START_FILES.get(os.path.basename(options.shell), []):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(options.rc + "\n")
    call("chown", "-R", f"{uid}:{uid}", str(home))
