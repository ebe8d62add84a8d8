"""Accounting for the Slurm cluster of the tests: MariaDB and slurmdbd on the controller's machine.

Creating the database takes several seconds, so a finished one is cached below .cache/: with the tables of Slurm, the
users, and their QoS. MariaDB listens on a socket only, and the folder of the socket is open to root only.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.machines import slurm_config
from tests.machines.file_cache import cached_folder
from tests.machines.machine import Machine
from tests.machines.network import wait_until
from tests.machines.programs import call, environment

DATA, SOCKET = "/var/lib/mysql", "/run/mysqld/mysqld.sock"
PORT = 6819
# Slurm needs stored procedures, and they need the system tables.
_SYSTEM_TABLES = """
{ echo 'create database mysql;'; echo 'use mysql;'
  cat /usr/share/mysql/mysql_system_tables.sql /usr/share/mysql/mysql_system_tables_data.sql; } | "$@" --bootstrap
"""
# Nothing has to survive a crash of the computer.
_MARIADB = (
    *("mariadbd", "--no-defaults", "--user=root", f"--datadir={DATA}", f"--socket={SOCKET}", "--skip-networking"),
    *("--skip-grant-tables", "--skip-log-bin", "--performance-schema=OFF", "--innodb-flush-log-at-trx-commit=0"),
    *("--innodb-flush-method=nosync", "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=16M"),
    *("--innodb-data-file-path=ibdata1:4M:autoextend", "--innodb-temp-data-file-path=ibtmp1:1M:autoextend"),
    *("--innodb-autoextend-increment=1", "--innodb-lock-wait-timeout=900"),
)


class Accounting:
    """MariaDB and slurmdbd on one machine."""

    def __init__(self, machine: Machine, users: list[str], start_controller: Callable[[], None]) -> None:
        self.machine = machine
        conf = machine.root / "etc/slurm/slurmdbd.conf"
        conf.write_text(slurm_config.SLURMDBD)
        conf.chmod(0o600)
        machine.run("install", "-d", "-m", "700", DATA, str(Path(SOCKET).parent))
        commands = slurm_config.accounts(users)

        def make(folder: Path) -> None:
            """Create the database and let Slurm register its cluster."""
            folder.mkdir(parents=True)
            machine.run("sh", "-c", _SYSTEM_TABLES, "sh", *_MARIADB)
            self.start()
            for command in commands:
                machine.run("sacctmgr", "-i", *command.split())
            start_controller()
            machine.run("scontrol", "shutdown", "slurmctld")
            wait_until(lambda: not is_running(machine, "slurmctld"), "the end of slurmctld")
            self.stop()
            call("cp", "-R", f"{machine.root}{DATA}", str(folder / "data"))
            machine.run("find", DATA, "/var/lib/slurm/slurmctld", "-mindepth", "1", "-delete")

        version = machine.run("slurmdbd", "-V").stdout
        about = hashlib.sha256(repr((version, commands, _MARIADB, slurm_config.SLURMDBD)).encode()).hexdigest()
        cache = cached_folder("slurm-accounting", about, make)
        call("cp", "-R", f"{cache}/data/.", f"{machine.root}{DATA}")
        self.start()

    def start(self) -> None:
        self._mariadb = subprocess.Popen(
            [*self.machine.inside(), *_MARIADB, "--log-error=/var/log/slurm/mariadb.log"],
            env=environment(**self.machine.switch.sandbox.marked),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_until(Path(f"{self.machine.root}{SOCKET}").exists, "the socket of MariaDB")
        self.machine.run("slurmdbd")
        wait_until(lambda: is_listening(self.machine, PORT), "slurmdbd")

    def close(self) -> None:
        """Reap the database's process after the machine's end."""
        self._mariadb.wait(60)

    def stop(self) -> None:
        """Stop slurmdbd and the database."""
        self.machine.run("pkill", "--exact", "slurmdbd")
        wait_until(lambda: not is_running(self.machine, "slurmdbd"), "the end of slurmdbd")
        self.machine.run("pkill", "--exact", "mariadbd")
        self._mariadb.wait(60)


def is_running(machine: Machine, program: str) -> bool:
    return machine.run("pgrep", "--exact", program, check=False).returncode == 0


def is_listening(machine: Machine, port: int) -> bool:
    return bool(machine.run("ss", "-Hltn", f"sport = :{port}").stdout)
