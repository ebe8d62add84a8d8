"""Two machines with one private address, each behind a jump host of its own, are two machines."""

from __future__ import annotations

import json

import pytest

from tests.e2e.attaching import SECRET, new_project

WAIT = "import os, time\nprint('going', flush=True)\nwhile not os.path.exists('stop'):\n    time.sleep(0.1)\n"
TELL = "import os\nprint(os.environ['API_KEY'])\n"


@pytest.fixture
def project(laptop):
    root = new_project(laptop)
    (root / "wait.py").write_text(WAIT)
    (root / "tell.py").write_text(TELL)
    return root


@pytest.fixture
def gates(laptop, machine):
    """Each is its own gateway: from there it is reached as 127.0.0.1."""
    found = [machine(password=f"{SECRET}{number}", sshd="ListenAddress 127.0.0.1\n") for number in range(2)]
    laptop.knows(*found)
    laptop.ssh_config("".join(f"Host {one.address}\n  IdentityFile {one.key}\n" for one in found))
    return found


def attach(laptop, project, gate, name, password):
    return laptop.mlw(
        *("computetarget", "attach", "remote", "--name", name, "--address", "127.0.0.1", "--username", "ada"),
        *("--jump", f"ada@{gate.address}", "--host-key", gate.host_key_fingerprint, "--password-stdin"),
        cwd=project,
        input=f"{password}\n",
        check=True,
    )


def test_each_run_is_asked_about_at_its_own_machine(laptop, project, gates):
    names = ("first", "second")
    runs = []
    for number, (gate, name) in enumerate(zip(gates, names, strict=True)):
        done = attach(laptop, project, gate, name, f"{SECRET}{number}")
        assert f"ada@127.0.0.1:22 through ada@{gate.address}" in done.err, done
        runs.append(laptop.mlw("submit", "-c", name, "--detach", "wait.py", cwd=project, check=True).run)
    laptop.mlw("ps", cwd=project, check=True)
    for run in runs:
        shown = json.loads(laptop.mlw("status", run, "-o", "json", cwd=project, check=True).out)
        assert shown["status"] in ("Starting", "Running"), shown
        laptop.mlw("cancel", run, cwd=project, check=True)


def test_a_target_that_is_not_attached_is_not_another_one(laptop, project, gates):
    """Neither code nor secrets go to the other machine, and its files are not deleted."""
    one, two = gates
    attach(laptop, project, one, "first", f"{SECRET}0")
    attach(laptop, project, two, "second", f"{SECRET}1")
    laptop.mlw("computetarget", "detach", "first", "--keep-files", cwd=project, check=True)
    sent = laptop.mlw("submit", "-c", "first", "--secret", "API_KEY", "tell.py", cwd=project, env={"API_KEY": SECRET})
    way = f"ada@127.0.0.1 through ada@{one.address}"
    assert sent.code == 69 and f"first is {way}, which you have not attached" in sent.err, sent
    assert f"--jump ada@{one.address}" in sent.err
    assert not list((two.home / ".mlw").glob("runs/*"))
    gone = laptop.mlw("computetarget", "detach", "first", "--purge", "--yes", cwd=project)
    assert gone.code == 69 and f"first is {way}, which you have not attached" in gone.err, gone
    assert (two.home / ".mlw").exists() and (project / "aml_config" / "first.compute").exists()


def test_each_machine_gets_its_own_password(laptop, project, gates):
    ring = laptop.has_keyring()
    for host in gates:
        no_keys = "\nMatch Address 127.0.0.1\n  PubkeyAuthentication no\n"
        host.run("sh", "-c", "cat >> /etc/ssh/sshd_config", text=no_keys)
        host.stop_sshd(sessions=True)
        host.start_sshd()
    for number, (gate, name) in enumerate(zip(gates, ("first", "second"), strict=True)):
        attach(laptop, project, gate, name, f"{SECRET}{number}")
    assert f"{SECRET}0" in ring.read_text() and f"{SECRET}1" in ring.read_text()
    for host, name in zip(gates, ("first", "second"), strict=True):
        done = laptop.mlw("computetarget", "check", name, cwd=project)
        assert done.code == 0, done
        assert "Failed password" not in host.log
    laptop.mlw("computetarget", "detach", "first", cwd=project, check=True)
    assert f"{SECRET}0" not in ring.read_text() and f"{SECRET}1" in ring.read_text()
