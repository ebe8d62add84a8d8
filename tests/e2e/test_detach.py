"""Detach and the runs of the machine: what ended comes home first, and what goes on is named."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.e2e.elsewhere import Away, content, digest, last_words

PURGE = ("--purge", "--yes")
QUIET = "import pathlib\nprint('said')\npathlib.Path('outputs/model').write_text('x' * 9000)\n"
LONG = "import time\nprint('begun', flush=True)\ntime.sleep(600)\n"


def leave(away, *words):
    return away.mlw("computetarget", "detach", away.name, *words)


def attach_again(away, told, name):
    """The command as it was printed, and the way in that a person would add."""
    [line] = re.findall(rf"mlw (computetarget attach \w+ --name {name} --address .*?)(?: \(or|;|\n|$)", told)[:1]
    more = [] if "--private-key-file" in line else ["--private-key-file", str(away.host.key)]
    return away.mlw(*shlex.split(line), *more, "--host-key", away.host.host_key_fingerprint)


# -- what ended there ---------------------------------------------------------------------------------------------


def test_a_purge_brings_home_what_nobody_followed(shared_target):
    away = shared_target()
    laptop = away.laptop
    run = away.detach("work.py", "one")
    other = laptop.project("other", train=QUIET)
    twin = laptop.mlw(
        *("computetarget", "attach", "remote", "--name", "gpu", "--address", away.host.address, "--username", "ada"),
        *("--private-key-file", str(away.host.key), "--host-key", away.host.host_key_fingerprint),
        cwd=other,
    )
    assert twin.code == 0, twin
    elsewhere = laptop.mlw("submit", "-c", "gpu", "--detach", "train.py", cwd=other, check=True).run
    for one in (run, elsewhere):
        away.await_end(one)
    laptop.mlw("ps", "--all", check=True)  # sees that they ended, and brings nothing
    log = digest(away.there(run) / "log")
    gone = leave(away, *PURGE)
    assert gone.code == 0 and not (away.host.home / ".mlw").exists(), gone
    assert run in gone.err and elsewhere in gone.err, "of every project"
    assert "stays attached" in gone.err and str(other) in gone.err
    listed = laptop.mlw("computetarget", "list", "--query", "[?name=='gpu'].attached", "-o", "table", cwd=other)
    assert "yes" in listed.out, "another project of this laptop loses nothing"
    assert laptop.info(run)["status"] == "Completed" == laptop.info(elsewhere)["status"]
    assert digest(laptop.folder(run) / "log") == log
    assert away.mlw("logs", run, check=True).out.encode() == last_words("one")
    assert content(laptop.folder(run) / "work/outputs/result.txt") == b"one" * 1000
    assert content(laptop.folder(elsewhere) / "work/outputs/model") == b"x" * 9000


def test_a_plain_detach_brings_them_home_too(shared_target):
    away = shared_target()
    run = away.detach("work.py", "one")
    away.await_end(run)
    gone = leave(away)
    assert gone.code == 0 and run in gone.err and "warning" not in gone.err, gone
    away.must_be_whole(run, "one")


def test_a_purge_deletes_no_results_that_are_there_alone(shared_target):
    away = shared_target()
    away.write("train.py", QUIET)
    config = away.project / "aml_config/box.runconfig"
    config.write_text(re.sub(r"(?m)^FetchOutputs:.*$", "FetchOutputs: none", config.read_text()))
    run = away.submit("train.py", check=True).run
    refused = leave(away, *PURGE)
    assert refused.code == 75 and "nothing was detached" in refused.err and run in refused.err, refused
    assert f"mlw history download -r {run}" in refused.err and "--force" in refused.err
    assert (away.there(run) / "work/outputs/model").exists() and (away.project / "aml_config/box.compute").exists()
    warned = leave(away, "--keep-files")
    assert warned.code == 0 and run in warned.err and "warning" in warned.err, "they stay there, and are named"
    again = attach_again(away, warned.err, "box")
    assert again.code == 0, again
    forced = leave(away, *PURGE, "--force")
    assert forced.code == 0 and run in forced.err and not (away.host.home / ".mlw").exists(), forced


def test_a_purge_knows_the_runs_of_another_name_of_the_machine(laptop, machine):
    """The address by which they went is not attached any more; the machine itself knows that it has them."""
    host = machine()
    first = Away(laptop, host, door=host.proxy())
    run = first.detach("work.py", "one", "--ticks")
    first.await_ticks(run)
    assert leave(first).code == 0
    second = Away(laptop, host, name="again", project=first.project)
    refused = leave(second, *PURGE)
    assert refused.code == 75 and run in refused.err, refused
    first.let_go()
    first.await_end(run)
    assert leave(second, *PURGE).code == 0
    assert laptop.info(run)["status"] == "Completed"
    assert content(laptop.folder(run) / "work/outputs/result.txt") == b"one" * 1000


FORGING_AGENT = r"""
import hashlib, json, os, sys
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
__package__ = "remote"
from remote import answers
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
answers.HANDLERS.update(news=news, file=file, outputs=outputs)
sys.exit(answers.main(sys.argv))
"""


@pytest.mark.parametrize("other_is", ["attached", "detached"])
def test_a_machine_cannot_forge_the_results_of_another(laptop, machine, other_is):
    """Nor while the other one is not attached: whoever answers for a run has to know what was sent with it."""
    away = Away(laptop, machine(), name="good")
    run = away.detach("work.py", "one", "--ticks")
    away.await_ticks(run)
    evil = Away(laptop, machine(), name="evil", project=away.project)
    if other_is == "detached":
        assert leave(away).code == 0
    [agent] = (evil.host.home / ".mlw/lib").glob("*/remote/agent.py")
    agent.write_text(FORGING_AGENT)
    assert leave(evil).code == 0
    assert laptop.info(run)["status"] == "Running", laptop.info(run)
    assert not (laptop.folder(run) / "work/outputs/model.pt").exists()
    away.let_go()


# -- what goes on there -------------------------------------------------------------------------------------------


def test_runs_that_go_on_are_named_with_the_way_back(laptop, machine):
    host = machine()
    door = host.proxy()
    away = Away(laptop, host, name="my_box", door=door)
    run = away.detach("work.py", "one", "--ticks")
    away.await_ticks(run)
    gone = leave(away)
    assert gone.code == 0 and "warning" in gone.err and run in gone.err, gone
    command = "mlw computetarget attach remote --name my_box --address 127.0.0.1"
    command += f" --username ada --port {door.port}"
    assert command in gone.err, gone
    assert not (away.project / "aml_config/my_box.compute").exists()
    for words in (("cancel", run), ("experiment", "resume", run), ("logs", "-f", run)):
        refused = away.mlw(*words)
        assert refused.code == 69 and command in refused.err, refused
    assert f"mlw cancel --forget {run}" in away.mlw("cancel", run).err
    again = attach_again(away, gone.err, "my_box")
    assert again.code == 0, again
    assert "not attached" not in away.mlw("show", run, check=True).out
    away.let_go()
    assert away.mlw("logs", "-f", run).code == 0
    away.must_be_whole(run, "one")


def test_not_attached_is_told_of_each_target_and_never_remembered(laptop, machine):
    one = Away(laptop, machine(), name="my_box")
    two = Away(laptop, machine(), name="box", project=one.project)
    one.write("long.py", LONG)
    runs = {away.name: away.detach("long.py") for away in (one, two)}
    for away in (one, two):
        assert leave(away, "--keep-files").code == 0
    told = one.mlw("ps", check=True).err
    for away in (one, two):
        who = f"{away.name} is ada@{away.host.address}, which you have not attached"
        assert re.search(rf"(?m)^{away.name}: no contact since .* \({re.escape(who)}\)", told), told
    again = attach_again(two, two.mlw("cancel", runs["box"]).err, "box")
    assert again.code == 0, again
    two.host.stop_sshd(sessions=True)
    shown = two.mlw("show", runs["box"]).out
    assert "no contact since" in shown and "not attached" not in shown, "it is attached, and does not answer"
    told = two.mlw("ps", check=True).err
    assert "my_box is ada@" in told and "\nbox is" not in told and "(box is" not in told, told


def test_a_machine_that_is_forgotten_without_contact(shared_target):
    away = shared_target()
    away.write("long.py", LONG)
    run = away.detach("long.py")
    away.host.stop_sshd(sessions=True)
    forced = leave(away, *PURGE, "--force")
    assert forced.code == 0 and "the machine was not contacted" in forced.err, forced
    assert f"run {run} (" in forced.err and f"--name box --address {away.host.address} --username ada" in forced.err


def test_a_submit_that_was_interrupted_is_named_and_keeps_nothing(shared_target):
    away = shared_target()
    assert away.submit("work.py", "one", env={"MLW_FAILPOINT": "recorded:kill"}).code != 0
    [run] = [record["run_id"] for record in away.runs()]
    gone = leave(away, *PURGE)
    assert gone.code == 0 and f"not started: run {run}" in gone.err and "they continue" not in gone.err, gone
    refused = away.mlw("cancel", run)
    assert refused.code == 69 and f"--address {away.host.address} --username ada" in refused.err, refused
