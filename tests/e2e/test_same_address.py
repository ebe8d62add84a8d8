"""Two machines with the same private address behind different jump hosts are different machines."""

from __future__ import annotations

import json

import pytest

from tests.e2e.attach_helpers import SECRET, new_project

WAIT = "import os, time\nprint('going', flush=True)\nwhile not os.path.exists('stop'):\n    time.sleep(0.1)\n"
PRINT_SECRET = "import os\nprint(os.environ['API_KEY'])\n"


@pytest.fixture
def project(laptop):
    root = new_project(laptop)
    (root / "wait.py").write_text(WAIT)
    (root / "tell.py").write_text(PRINT_SECRET)
    return root


@pytest.fixture
def gateways(laptop, machine):
    """Two machines, each of which is its own jump host, from which it is reached as 127.0.0.1."""
    machines = [machine(password=f"{SECRET}{number}", sshd="ListenAddress 127.0.0.1\n") for number in range(2)]
    laptop.trust_host_keys(*machines)
    laptop.ssh_config("".join(f"Host {host.address}\n  IdentityFile {host.key}\n" for host in machines))
    return machines


def attach(laptop, project, gateway, name, password):
    return laptop.mlw(
        *("computetarget", "attach", "remote", "--name", name, "--address", "127.0.0.1", "--username", "ada"),
        *("--jump", f"ada@{gateway.address}", "--host-key", gateway.host_key_fingerprint, "--password-stdin"),
        cwd=project,
        input=f"{password}\n",
        check=True,
    )


def test_run_status_is_requested_from_its_own_machine(laptop, project, gateways):
    names = ("first", "second")
    runs = []
    for number, (gateway, name) in enumerate(zip(gateways, names, strict=True)):
        done = attach(laptop, project, gateway, name, f"{SECRET}{number}")
        assert f"ada@127.0.0.1:22 through ada@{gateway.address}" in done.err, done
        runs.append(laptop.mlw("submit", "-c", name, "--detach", "wait.py", cwd=project, check=True).run)
    laptop.mlw("ps", cwd=project, check=True)
    for run in runs:
        shown = json.loads(laptop.mlw("status", run, "-o", "json", cwd=project, check=True).out)
        assert shown["status"] in ("Starting", "Running"), shown
        laptop.mlw("cancel", run, cwd=project, check=True)


def test_detached_target_is_not_confused_with_another(laptop, project, gateways):
    """The other machine receives neither code nor secrets, and its files are not deleted."""
    first, second = gateways
    attach(laptop, project, first, "first", f"{SECRET}0")
    attach(laptop, project, second, "second", f"{SECRET}1")
    laptop.mlw("computetarget", "detach", "first", "--keep-files", cwd=project, check=True)
    sent = laptop.mlw("submit", "-c", "first", "--secret", "API_KEY", "tell.py", cwd=project, env={"API_KEY": SECRET})
    way = f"ada@127.0.0.1 through ada@{first.address}"
    assert sent.code == 69 and f"first is {way}, which you have not attached" in sent.err, sent
    assert f"--jump ada@{first.address}" in sent.err
    assert not list((second.home / ".mlw").glob("runs/*"))
    gone = laptop.mlw("computetarget", "detach", "first", "--purge", "--yes", cwd=project)
    assert gone.code == 69 and f"first is {way}, which you have not attached" in gone.err, gone
    assert (second.home / ".mlw").exists() and (project / "aml_config" / "first.compute").exists()


def test_each_machine_gets_its_own_password(laptop, project, gateways):
    ring = laptop.enable_keyring()
    for host in gateways:
        no_keys = "\nMatch Address 127.0.0.1\n  PubkeyAuthentication no\n"
        host.run("sh", "-c", "cat >> /etc/ssh/sshd_config", text=no_keys)
        host.stop_sshd(sessions=True)
        host.start_sshd()
    for number, (gateway, name) in enumerate(zip(gateways, ("first", "second"), strict=True)):
        attach(laptop, project, gateway, name, f"{SECRET}{number}")
    assert f"{SECRET}0" in ring.read_text() and f"{SECRET}1" in ring.read_text()
    for host, name in zip(gateways, ("first", "second"), strict=True):
        done = laptop.mlw("computetarget", "check", name, cwd=project)
        assert done.code == 0, done
        assert "Failed password" not in host.log
    laptop.mlw("computetarget", "detach", "first", cwd=project, check=True)
    assert f"{SECRET}0" not in ring.read_text() and f"{SECRET}1" in ring.read_text()
