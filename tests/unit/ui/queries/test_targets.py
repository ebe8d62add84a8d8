"""What the page of targets and the API build on: words of commands, cards, GPUs that are asked for sparingly."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mlworkbench.attachments import Attachments
from mlworkbench.cli.submit import _request
from mlworkbench.cli.submit import submit as submit_command
from mlworkbench.cli.verbs import mlw
from mlworkbench.config.project import create_project
from mlworkbench.consents import Consent
from mlworkbench.errors import UnknownName, Unreachable
from mlworkbench.history.store import History
from mlworkbench.hosts.gpus import Gpu, Gpus
from mlworkbench.model import Compute
from mlworkbench.paths import UserPaths
from mlworkbench.request import Request, SweepOptions
from mlworkbench.resubmit import submit_words
from mlworkbench.ui import gpuwatch
from mlworkbench.ui.answers import targets, words
from mlworkbench.ui.parts.held import Held

NASTY = ("--help", "-c", "--", "-", "$(reboot)", "a b", "--yes", "ä")


# -- words -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", NASTY)
def test_no_text_of_a_user_becomes_an_option_of_submit(text):
    sweep = SweepOptions(["lr=0.1,0.2"], random=True, seed=3, metric=text)
    wanted = Request(
        configuration=text, target=text, script="train.py", arguments=[text, "--lr"], name=text, tags=[text, text],
        timeout=text, key=text, locked=text, environment={"A": text}, secrets=["TOKEN"], sweep=sweep,
        allow_builds=[text], allow_mounts=[text], allow_networks=[text],
    )  # fmt: skip
    asked = parsed(submit_command, submit_words(wanted)[2:])
    assert asked["words"] == ("train.py", text, "--lr") and asked["kind"] == "script"
    for name in ("runconfig", "target", "name", "timeout", "key", "locked", "metric"):
        assert asked[name] == text
    assert asked["tags"] == (text, text) and asked["variables"] == (f"A={text}",) and asked["secrets"] == ("TOKEN",)
    assert asked["axes"] == ("lr=0.1,0.2",) and asked["drawn"] is True and asked["seed"] == 3
    assert asked["allow_builds"] == asked["mounts"] == asked["networks"] == (text,)
    assert asked["wait"] is False and asked["output"] == "json"
    assert _request(asked) == replace(wanted, secrets=("TOKEN",)), "and the command line reads the same request"
    command = parsed(submit_command, submit_words(replace(wanted, script=None, command=text, sweep=None))[2:])
    assert (command["kind"], command["words"]) == ("command", (text, text, "--lr"))


@pytest.mark.parametrize("text", NASTY)
def test_no_text_of_a_user_becomes_an_option_of_other_commands(text):
    attach = words.Attach(name=text, kind="remote", address=text, username=text, jump=text, image=text, mounts=[text])
    said = parsed(verb("computetarget", "attach"), attach.words(password=True)[2:])
    assert all(said[name] == text for name in ("name", "address", "username", "jump", "image"))
    assert (
        said["mounts"] == (text,) and said["kind"] == "remote" and said["password_stdin"] and said["password"] is None
    )
    for made, name in (
        (words.check_words(text), "check"),
        (words.detach_words(text, purge=True), "detach"),
        (words.update_words(text, allow=[text], forbid=[text]), "update"),
        (words.reset_key_words(text, text), "reset-key"),
    ):
        assert parsed(verb("computetarget", name), made[2:])["name"] == text
    assert parsed(verb("experiment", "clean"), words.clean_words(text)[2:])["target"] == text
    assert not parsed(verb("experiment", "clean"), words.clean_words(None)[2:])["yes"]
    assert parsed(verb("experiment", "clean"), words.clean_words(text, remove=True)[2:])["yes"]
    assert parsed(verb("experiment", "prepare"), words.prepare_words(configuration=text)[2:])["runconfig"] == text
    removal = words.remove_environments_words(text, [text])[2:]
    assert parsed(verb("environment", "remove"), removal)["digests"] == (text,)


def verb(*names: str) -> Any:
    command: Any = mlw
    for name in names:
        command = command.get_command(None, name)
    return command


def parsed(command: Any, said: list[str]) -> dict[str, Any]:
    return dict(command.make_context("mlw", list(said)).params)


# -- a secret between two attempts -------------------------------------------------------------------------


def test_a_secret_is_kept_for_a_while_only():
    async def story() -> None:
        held = Held(longest=0.01)
        held.keep("x-secret")
        assert held.value == "x-secret" and "x-secret" not in repr(held)
        while held.value is not None:
            await asyncio.sleep(0.001)
        held.keep("again")
        held.drop()
        assert held.value is None

    asyncio.run(asyncio.wait_for(story(), 10))


# -- cards -------------------------------------------------------------------------------------------------


@pytest.fixture
def history(tmp_path):
    return History(UserPaths(tmp_path / "home"))


def test_cards_tell_what_is_known_here(history, tmp_path):
    project = create_project("demo", tmp_path)
    (project.folder / "far.compute").write_text("type: remotedocker\naddress: 192.0.2.7\nusername: ada\nport: 2222\n")
    (project.folder / "far.runconfig").write_text("Target: far\nFramework: Python\n")
    (project.folder / "bad.compute").write_text("type: [\n")
    (project.folder / "bad.runconfig").write_text("[\n")
    found = {one.name: one for one in targets.cards(history, project)}
    assert list(found) == ["bad", "docker", "far", "local"]
    assert found["bad"].trouble and found["bad"].type is None
    assert found["local"].uses == (targets.Use("local", "aml_config/local.runconfig"),) and not found["local"].elsewhere
    far = found["far"]
    assert far.address == "ada@192.0.2.7:2222" and far.attached is None and "not attached" in str(far.trouble)
    attachments = Attachments(history.paths)
    draft = attachments.draft("ada@192.0.2.7:2222", address="192.0.2.7", username="ada", port=2222)
    facts = {"time": 5.0, "os": {"title": "Plan 9"}, "cpu": {"usable": 3, "count": 3}}
    attachments.save(
        replace(draft, key="mlw", host_key="SHA256:x", allowed=(Consent("mount", "/data", "rw"),), facts=facts)
    )
    far = targets.card(history, project, "far")
    assert far.trouble is None and far.attached is not None
    assert (far.attached.checked, far.attached.mounts, far.attached.made) == (5.0, ("/data",), True)
    assert {one.what: one.found for one in far.findings}["processors"] == "3"
    with pytest.raises(UnknownName, match="available: bad, docker, far, local"):
        targets.card(history, project, "nothing")


def test_the_address_of_a_file_holds_any_name():
    assert targets.file_address("k", "aml_config/a b&c#.compute") == "/p/k/files?path=aml_config%2Fa%20b%26c%23.compute"


# -- GPUs --------------------------------------------------------------------------------------------------


class Machine:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.asked = self.opened = self.closed = 0
        self.silent = False

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def there(monkeypatch):
    machine = Machine()

    class Target:
        def __init__(self) -> None:
            machine.opened += 1
            self.host = machine

    def ask(host: Machine) -> Gpus:
        host.asked += 1
        assert host.let.wait(10)
        if host.silent:
            raise Unreachable("nobody is there", "look for it")
        return Gpus(gpus=(Gpu(index=0, utilisation=host.asked),))

    monkeypatch.setattr(gpuwatch, "open_target", lambda compute, paths: Target())
    monkeypatch.setattr(gpuwatch, "ask_gpus", ask)
    monkeypatch.setattr(gpuwatch, "_PATIENCE", 0.05)
    monkeypatch.setattr(gpuwatch, "PAUSE", 0.3)
    return machine


BOX = Compute("box", "remote", "192.0.2.7", "ada")


def test_one_question_at_a_time_by_one_connection(there, tmp_path):
    async def story() -> None:
        watch = gpuwatch.GpuWatch(UserPaths(tmp_path))
        first = await asyncio.gather(*(watch.ask(BOX) for _ in range(20)))
        assert {one.state for one in first} == {"asking"} and there.asked == 1, "nobody waits for long"
        there.let.set()
        found = await watch.ask(BOX)
        assert found.state == "ok" and found.gpus is not None and found.gpus.gpus[0].utilisation == 1
        end = time.monotonic() + 10
        while there.asked < 4 and time.monotonic() < end:
            await watch.ask(BOX)
            await asyncio.sleep(0.01)
        assert there.asked >= 4 and there.opened == 1, "by the same connection"
        await watch.let_go(BOX)
        assert there.closed == 1

    asyncio.run(story())


def test_a_machine_that_does_not_answer_is_asked_more_slowly(there, tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(gpuwatch, "_PATIENCE", 5.0)
    monkeypatch.setattr(gpuwatch, "time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time))
    there.let.set()

    async def story() -> list[float]:
        watch = gpuwatch.GpuWatch(UserPaths(tmp_path))
        assert (await watch.ask(BOX)).state == "ok"
        there.silent = True
        pauses = []
        for _ in range(12):
            clock[0] += 100
            asked = there.asked
            found = await watch.ask(BOX)
            assert found.state == "no contact" and found.message == "nobody is there" and found.hint == "look for it"
            assert found.gpus is not None, "the last figures stay"
            again = await watch.ask(BOX)
            assert again == found and there.asked == asked + 1, "not asked again before its time"
            pauses.append(found.again)
        there.silent = False
        clock[0] += 100
        assert (await watch.ask(BOX)).state == "ok"
        return pauses

    pauses = asyncio.run(story())
    assert pauses == sorted(pauses) and pauses[0] == 0.6 and pauses[-1] == 60.0
    assert there.opened == 13, "a connection that failed is not used again"
