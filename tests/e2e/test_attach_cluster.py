"""Attach a Spark cluster through an SSH edge node or from this machine. No Spark is needed."""

from __future__ import annotations

import json
import socket

import yaml

from tests.e2e.attach_helpers import SECRET, new_project


def test_attach_cluster_through_edge_node(laptop, machine):
    host = machine(password=SECRET)
    project = new_project(laptop)
    arguments = [
        "computetarget",
        "attach",
        "cluster",
        "-n",
        "hdi",
        "-a",
        host.address,
        "-u",
        host.user,
        "--master",
        "yarn",
    ]
    arguments += ["--host-key", host.host_key_fingerprint, "--password-stdin"]
    done = laptop.mlw(*arguments, cwd=project, input=SECRET + "\n")
    assert done.code == 0, done
    assert f"attached hdi: cluster at {host.user}@{host.address}" in done.err
    assert "warning: spark: Spark was not found" in done.err and "hint: add pyspark to the packages" in done.err
    compute = yaml.safe_load((project / "aml_config" / "hdi.compute").read_text())
    settings = {name: value for name, value in compute.items() if value is not None}
    assert settings == {
        "type": "cluster",
        "address": host.address,
        "username": host.user,
        "sparkMaster": "yarn",
        "yarnDeployMode": "client",
    }
    runconfig = yaml.safe_load((project / "aml_config" / "hdi.runconfig").read_text())
    assert (runconfig["Target"], runconfig["Framework"]) == ("hdi", "PySpark")
    checked = laptop.mlw("computetarget", "check", "hdi", "-o", "json", cwd=project)
    checks = {row["what"]: row for row in json.loads(checked.out)}
    assert checks["spark"]["state"] == "warning" and "SPARK_HOME is not set" in checks["spark"]["found"]
    other = laptop.mlw("computetarget", "attach", "cluster", "-n", "hdi", "--master", "spark://x:1", cwd=project)
    assert other.code == 2 and "already exists for another machine" in other.err
    laptop.mlw("computetarget", "detach", "hdi", cwd=project, check=True)
    assert not (project / "aml_config" / "hdi.compute").exists()


def test_attach_cluster_from_this_machine(user):
    project = user.project("demo", train="print(1)")
    with socket.create_server(("127.0.0.1", 0)) as master:
        address = f"spark://127.0.0.1:{master.getsockname()[1]}"
        done = user.mlw("computetarget", "attach", "cluster", "-n", "here", "--master", address, cwd=project)
        assert done.code == 0, done
        assert f"attached here: cluster at {address}" in done.err
        checked = json.loads(user.mlw("computetarget", "check", "here", "-o", "json", cwd=project).out)
        assert {"what": "master", "state": "ok", "found": f"{address} is reachable", "hint": None} in checked
    listed = user.mlw("computetarget", "list", cwd=project).out
    assert next(line for line in listed.splitlines() if line.startswith("here")).split()[1:3] == ["cluster", address]
    silent = user.mlw("computetarget", "check", "here", cwd=project)
    assert silent.code == 75 and "this machine cannot reach" in silent.out
    gone = user.mlw("computetarget", "detach", "here", cwd=project)
    assert gone.code == 0, gone
    assert not (project / "aml_config" / "here.compute").exists()


def test_unreachable_master_changes_nothing(user):
    project = user.project("demo", train="print(1)")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    before = sorted((project / "aml_config").iterdir())
    attach = ["computetarget", "attach", "cluster", "-n", "here", "--master"]
    done = user.mlw(*attach, f"spark://127.0.0.1:{port}", cwd=project)
    assert (
        done.code == 75
        and "nothing was attached: this machine cannot reach spark://127.0.0.1:" in done.err
        and "hint: start it" in done.err
    )
    wrong = user.mlw(*attach, "127.0.0.1:7077", cwd=project)
    assert wrong.code == 2 and "is not a valid Spark master" in wrong.err and "spark://host:7077" in wrong.err
    for slip in ("localhost:7077", "yarn-cluster"):
        assert user.mlw(*attach, slip, cwd=project).code == 2, "Spark would take it for something else"
    without = user.mlw(*attach, "yarn", "--username", "ada", cwd=project)
    assert without.code == 2 and "--address is missing" in without.err, "the user means a machine elsewhere"
    portless = user.mlw(*attach, "spark://host", cwd=project)
    assert portless.code == 75 and "host has no port" in portless.err
    other = user.mlw("computetarget", "attach", "remote", "-n", "here", "--master", "yarn", cwd=project)
    assert other.code == 2 and "--master works only with cluster targets" in other.err
    assert sorted((project / "aml_config").iterdir()) == before
