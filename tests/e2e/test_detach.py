"""Detach and the runs on the machine: results of ended runs are fetched first, and active runs are named."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.e2e.remote_target import RemoteTarget, content, digest, final_output

PURGE = ("--purge", "--yes")
QUIET = "import pathlib\nprint('said')\npathlib.Path('outputs/model').write_text('x' * 9000)\n"
LONG_SCRIPT = "import time\nprint('begun', flush=True)\ntime.sleep(600)\n"


def detach(remote, *options):
    return remote.mlw("computetarget", "detach", remote.name, *options)


def attach_again(remote, message, name):
    """Run the printed command with the authentication options that a user would add."""
    [line] = re.findall(rf"mlw (computetarget attach \w+ --name {name} --address .*?)(?: \(or|;|\n|$)", message)[:1]
    more = [] if "--private-key-file" in line else ["--private-key-file", str(remote.host.key)]
    return remote.mlw(*shlex.split(line), *more, "--host-key", remote.host.host_key_fingerprint)


# -- ended runs ---------------------------------------------------------------------------------------------------


def test_purge_fetches_unfollowed_results(shared_target):
    remote = shared_target()
    laptop = remote.laptop
    run = remote.detach("work.py", "one")
    other = laptop.project("other", train=QUIET)
    twin = laptop.mlw(
        *("computetarget", "attach", "remote", "--name", "gpu", "--address", remote.host.address, "--username", "ada"),
        *("--private-key-file", str(remote.host.key), "--host-key", remote.host.host_key_fingerprint),
        cwd=other,
    )
    assert twin.code == 0, twin
    other_run = laptop.mlw("submit", "-c", "gpu", "--detach", "train.py", cwd=other, check=True).run
    for run_id in (run, other_run):
        remote.await_end(run_id)
    laptop.mlw("ps", "--all", check=True)  # updates the state without fetching results
    log = digest(remote.target_folder(run) / "log")
    gone = detach(remote, *PURGE)
    assert gone.code == 0 and not (remote.host.home / ".mlw").exists(), gone
    assert run in gone.err and other_run in gone.err, "of every project"
    assert "stays attached" in gone.err and str(other) in gone.err
    listed = laptop.mlw("computetarget", "list", "--query", "[?name=='gpu'].attached", "-o", "table", cwd=other)
    assert "yes" in listed.out, "another project of this laptop loses nothing"
    assert laptop.info(run)["status"] == "Completed" == laptop.info(other_run)["status"]
    assert digest(laptop.folder(run) / "log") == log
    assert remote.mlw("logs", run, check=True).out.encode() == final_output("one")
    assert content(laptop.folder(run) / "work/outputs/result.txt") == b"one" * 1000
    assert content(laptop.folder(other_run) / "work/outputs/model") == b"x" * 9000


def test_detach_fetches_results(shared_target):
    remote = shared_target()
    run = remote.detach("work.py", "one")
    remote.await_end(run)
    gone = detach(remote)
    assert gone.code == 0 and run in gone.err and "warning" not in gone.err, gone
    remote.assert_complete(run, "one")


def test_purge_keeps_unfetched_results(shared_target):
    remote = shared_target()
    remote.write("train.py", QUIET)
    config = remote.project / "aml_config/box.runconfig"
    config.write_text(re.sub(r"(?m)^FetchOutputs:.*$", "FetchOutputs: none", config.read_text()))
    run = remote.submit("train.py", check=True).run
    refused = detach(remote, *PURGE)
    assert refused.code == 75 and "nothing was detached" in refused.err and run in refused.err, refused
    assert f"mlw history download -r {run}" in refused.err and "--force" in refused.err
    assert (remote.target_folder(run) / "work/outputs/model").exists() and (
        remote.project / "aml_config/box.compute"
    ).exists()
    warned = detach(remote, "--keep-files")
    assert warned.code == 0 and run in warned.err and "warning" in warned.err, "they stay there, and are named"
    again = attach_again(remote, warned.err, "box")
    assert again.code == 0, again
    forced = detach(remote, *PURGE, "--force")
    assert forced.code == 0 and run in forced.err and not (remote.host.home / ".mlw").exists(), forced


def test_purge_finds_runs_of_other_target_name(laptop, machine):
    """The runs were submitted through an address that is no longer attached; the machine still lists them."""
    host = machine()
    first = RemoteTarget(laptop, host, proxy=host.proxy())
    run = first.detach("work.py", "one", "--ticks")
    first.await_ticks(run)
    assert detach(first).code == 0
    second = RemoteTarget(laptop, host, name="again", project=first.project)
    refused = detach(second, *PURGE)
    assert refused.code == 75 and run in refused.err, refused
    first.release()
    first.await_end(run)
    assert detach(second, *PURGE).code == 0
    assert laptop.info(run)["status"] == "Completed"
    assert content(laptop.folder(run) / "work/outputs/result.txt") == b"one" * 1000


FORGING_AGENT = r"""
import hashlib, json, os, sys
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
__package__ = "remote"
from remote import handlers
DATA = b"forged"
FILE = {"path": "model.pt", "size": len(DATA), "sha256": hashlib.sha256(DATA).hexdigest(), "kind": "file"}
LIST = {"outputs": [FILE]}
ENDING = {"ending": "succeeded", "exit": 0, "outputs": 1, "output_bytes": len(DATA), "log_size": 0, "elapsed": 1.0}
EVENT = {"w": "sup", "seq": 10**6, "t": 1.7e9, "kind": "finished", "data": ENDING}
def news(talk, request, body):
    if "events.jsonl" in request["offsets"]:
        talk.pipe.send({"more": True, "name": "events.jsonl"}, (json.dumps(EVENT) + "\n").encode())
    return {"ok": True, "exists": True, "claimed": True, "supervised": True}
def file(talk, request, body):
    known = {"outputs.json": LIST, "spec.json": {"id": request["run"], "key": "0" * 32, "created": 1.7e9}}
    whole = json.dumps(known[request["name"]]).encode() if request["name"] in known else b""
    talk.pipe.send({"more": True}, whole[request.get("offset", 0):])
    return {"ok": True}
def outputs(talk, request, body):
    talk.pipe.send({"more": True, "file": 0}, DATA)
    return {"ok": True}
handlers.HANDLERS.update(news=news, file=file, outputs=outputs)
sys.exit(handlers.main(sys.argv))
"""


@pytest.mark.parametrize("other_is", ["attached", "detached"])
def test_machine_cannot_forge_results_of_another(laptop, machine, other_is):
    """Only a machine that received the run's secret can report on the run, even while the run's machine is detached."""
    remote = RemoteTarget(laptop, machine(), name="good")
    run = remote.detach("work.py", "one", "--ticks")
    remote.await_ticks(run)
    evil = RemoteTarget(laptop, machine(), name="evil", project=remote.project)
    if other_is == "detached":
        assert detach(remote).code == 0
    [agent] = (evil.host.home / ".mlw/lib").glob("*/remote/agent.py")
    agent.write_text(FORGING_AGENT)
    assert detach(evil).code == 0
    assert laptop.info(run)["status"] == "Running", laptop.info(run)
    assert not (laptop.folder(run) / "work/outputs/model.pt").exists()
    remote.release()


# -- active runs --------------------------------------------------------------------------------------------------


def test_active_runs_are_listed_with_reattach_command(laptop, machine):
    host = machine()
    proxy = host.proxy()
    remote = RemoteTarget(laptop, host, name="my_box", proxy=proxy)
    run = remote.detach("work.py", "one", "--ticks")
    remote.await_ticks(run)
    gone = detach(remote)
    assert gone.code == 0 and "warning" in gone.err and run in gone.err, gone
    command = "mlw computetarget attach remote --name my_box --address 127.0.0.1"
    command += f" --username ada --port {proxy.port}"
    assert command in gone.err, gone
    assert not (remote.project / "aml_config/my_box.compute").exists()
    for arguments in (("cancel", run), ("experiment", "resume", run), ("logs", "-f", run)):
        refused = remote.mlw(*arguments)
        assert refused.code == 69 and command in refused.err, refused
    assert f"mlw cancel --forget {run}" in remote.mlw("cancel", run).err
    again = attach_again(remote, gone.err, "my_box")
    assert again.code == 0, again
    assert "not attached" not in remote.mlw("show", run, check=True).out
    remote.release()
    assert remote.mlw("logs", "-f", run).code == 0
    remote.assert_complete(run, "one")


def test_not_attached_is_reported_per_target_and_not_cached(laptop, machine):
    attached_target = RemoteTarget(laptop, machine(), name="my_box")
    two = RemoteTarget(laptop, machine(), name="box", project=attached_target.project)
    attached_target.write("long.py", LONG_SCRIPT)
    runs = {remote.name: remote.detach("long.py") for remote in (attached_target, two)}
    for remote in (attached_target, two):
        assert detach(remote, "--keep-files").code == 0
    message = attached_target.mlw("ps", check=True).err
    for remote in (attached_target, two):
        who = f"{remote.name} is ada@{remote.host.address}, which you have not attached"
        assert re.search(rf"(?m)^{remote.name}: no contact since .* \({re.escape(who)}\)", message), message
    again = attach_again(two, two.mlw("cancel", runs["box"]).err, "box")
    assert again.code == 0, again
    two.host.stop_sshd(sessions=True)
    shown = two.mlw("show", runs["box"]).out
    assert "no contact since" in shown and "not attached" not in shown, "it is attached, and does not answer"
    message = two.mlw("ps", check=True).err
    assert "my_box is ada@" in message and "\nbox is" not in message and "(box is" not in message, message


def test_detach_without_contact(shared_target):
    remote = shared_target()
    remote.write("long.py", LONG_SCRIPT)
    run = remote.detach("long.py")
    remote.host.stop_sshd(sessions=True)
    forced = detach(remote, *PURGE, "--force")
    assert forced.code == 0 and "the machine was not contacted" in forced.err, forced
    assert f"run {run} (" in forced.err and f"--name box --address {remote.host.address} --username ada" in forced.err


def test_interrupted_submit_is_listed_and_does_not_block_detach(shared_target):
    remote = shared_target()
    assert remote.submit("work.py", "one", env={"MLW_FAILPOINT": "recorded:kill"}).code != 0
    [run] = [record["run_id"] for record in remote.runs()]
    gone = detach(remote, *PURGE)
    assert gone.code == 0 and f"not started: run {run}" in gone.err and "they continue" not in gone.err, gone
    refused = remote.mlw("cancel", run)
    assert refused.code == 69 and f"--address {remote.host.address} --username ada" in refused.err, refused
