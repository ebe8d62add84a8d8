"""Data of the targets page and the API: command lines, cards, and GPU polling."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mlworkbench.attachments import Attachments
from mlworkbench.cli.command_tree import mlw
from mlworkbench.cli.submit import _build_request
from mlworkbench.cli.submit import submit as submit_command
from mlworkbench.config.project_folder import create_project
from mlworkbench.container_consents import Consent
from mlworkbench.errors import UnknownName, Unreachable
from mlworkbench.history.store import History
from mlworkbench.hosts.gpu_values import Gpu, Gpus
from mlworkbench.model import Compute
from mlworkbench.paths import UserPaths
from mlworkbench.resubmit import submit_words
from mlworkbench.submit_request import Request, SweepOptions
from mlworkbench.ui import gpu_poller, operation_arguments
from mlworkbench.ui.components.secret_cache import SecretCache
from mlworkbench.ui.queries import targets

NASTY = ("--help", "-c", "--", "-", "$(reboot)", "a b", "--yes", "ä")


# -- command lines -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", NASTY)
def test_user_text_never_becomes_an_option_of_submit(text):
    sweep = SweepOptions(["lr=0.1,0.2"], random=True, seed=3, metric=text)
    request = Request(
        configuration=text, target=text, script="train.py", arguments=[text, "--lr"], name=text, tags=[text, text],
        timeout=text, key=text, locked=text, environment={"A": text}, secrets=["TOKEN"], sweep=sweep,
        allow_builds=[text], allow_mounts=[text], allow_networks=[text],
    )  # fmt: skip
    options = parse(submit_command, submit_words(request)[2:])
    assert options["arguments"] == ("train.py", text, "--lr") and options["kind"] == "script"
    for name in ("runconfig", "target", "name", "timeout", "key", "locked", "metric"):
        assert options[name] == text
    assert (
        options["tags"] == (text, text) and options["variables"] == (f"A={text}",) and options["secrets"] == ("TOKEN",)
    )
    assert options["axes"] == ("lr=0.1,0.2",) and options["random"] is True and options["seed"] == 3
    assert options["allow_builds"] == options["mounts"] == options["networks"] == (text,)
    assert options["wait"] is False and options["output"] == "json"
    assert _build_request(options) == replace(request, secrets=("TOKEN",)), (
        "and the command line reads the same request"
    )
    command = parse(submit_command, submit_words(replace(request, script=None, command=text, sweep=None))[2:])
    assert (command["kind"], command["arguments"]) == ("command", (text, text, "--lr"))


@pytest.mark.parametrize("text", NASTY)
def test_user_text_never_becomes_an_option_of_other_commands(text):
    attach = operation_arguments.Attach(
        name=text, kind="remote", address=text, username=text, jump=text, image=text, mounts=[text], partition=text
    )
    options = parse(find_command("computetarget", "attach"), attach.arguments(password=True)[2:])
    assert all(options[name] == text for name in ("name", "address", "username", "jump", "image", "partition"))
    assert (
        options["mounts"] == (text,)
        and options["kind"] == "remote"
        and options["password_stdin"]
        and options["password"] is None
    )
    for arguments, name in (
        (operation_arguments.check_arguments(text), "check"),
        (operation_arguments.detach_arguments(text, purge=True), "detach"),
        (operation_arguments.update_arguments(text, allow=[text], forbid=[text]), "update"),
        (operation_arguments.reset_key_arguments(text, text), "reset-key"),
    ):
        assert parse(find_command("computetarget", name), arguments[2:])["name"] == text
    assert parse(find_command("experiment", "clean"), operation_arguments.clean_arguments(text)[2:])["target"] == text
    assert not parse(find_command("experiment", "clean"), operation_arguments.clean_arguments(None)[2:])["yes"]
    assert parse(find_command("experiment", "clean"), operation_arguments.clean_arguments(text, remove=True)[2:])["yes"]
    assert (
        parse(find_command("experiment", "prepare"), operation_arguments.prepare_arguments(configuration=text)[2:])[
            "runconfig"
        ]
        == text
    )
    removal = operation_arguments.remove_environments_arguments(text, [text])[2:]
    assert parse(find_command("environment", "remove"), removal)["digests"] == (text,)


def find_command(*names: str) -> Any:
    command: Any = mlw
    for name in names:
        command = command.get_command(None, name)
    return command


def parse(command: Any, arguments: list[str]) -> dict[str, Any]:
    return dict(command.make_context("mlw", list(arguments)).params)


# -- secret cache -------------------------------------------------------------------------


def test_secret_cache_expires():
    async def scenario() -> None:
        cache = SecretCache(lifetime=0.01)
        cache.keep("x-secret")
        assert cache.value == "x-secret" and "x-secret" not in repr(cache)
        while cache.value is not None:
            await asyncio.sleep(0.001)
        cache.keep("again")
        cache.drop()
        assert cache.value is None

    asyncio.run(asyncio.wait_for(scenario(), 10))


# -- cards -------------------------------------------------------------------------------------------------


@pytest.fixture
def history(tmp_path):
    return History(UserPaths(tmp_path / "home"))


def test_target_cards(history, tmp_path):
    project = create_project("demo", tmp_path)
    (project.folder / "far.compute").write_text("type: remotedocker\naddress: 192.0.2.7\nusername: ada\nport: 2222\n")
    (project.folder / "far.runconfig").write_text("Target: far\nFramework: Python\n")
    (project.folder / "bad.compute").write_text("type: [\n")
    (project.folder / "bad.runconfig").write_text("[\n")
    cards = {card.name: card for card in targets.cards(history, project)}
    assert list(cards) == ["bad", "docker", "far", "local"]
    assert cards["bad"].trouble and cards["bad"].type is None
    assert cards["local"].uses == (targets.Use("local", "aml_config/local.runconfig"),) and not cards["local"].elsewhere
    far = cards["far"]
    assert far.address == "ada@192.0.2.7:2222" and far.attached is None and "not attached" in str(far.trouble)
    attachments = Attachments(history.paths)
    draft = attachments.draft("ada@192.0.2.7:2222", address="192.0.2.7", username="ada", port=2222)
    facts = {"time": 5.0, "os": {"title": "Plan 9"}, "cpu": {"usable": 3, "count": 3}}
    attachments.save(
        replace(draft, key="mlw", host_key="SHA256:x", allowed=(Consent("mount", "/data", "rw"),), facts=facts)
    )
    far = targets.card(history, project, "far")
    assert far.trouble is None and far.attached is not None
    assert (far.attached.checked, far.attached.mounts, far.attached.has_generated_key) == (5.0, ("/data",), True)
    assert {finding.what: finding.found for finding in far.findings}["processors"] == "3"
    with pytest.raises(UnknownName, match="available: bad, docker, far, local"):
        targets.card(history, project, "nothing")


def test_file_url_supports_any_name():
    assert targets.file_url("k", "aml_config/a b&c#.compute") == "/p/k/files?path=aml_config%2Fa%20b%26c%23.compute"


# -- GPUs --------------------------------------------------------------------------------------------------


class Machine:
    """A machine that responds only when the test allows it."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.polls = self.opened = self.closed = 0
        self.silent = False

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()

    class Target:
        def __init__(self) -> None:
            machine.opened += 1
            self.host = machine

    def ask(host: Machine) -> Gpus:
        host.polls += 1
        assert host.released.wait(10)
        if host.silent:
            raise Unreachable("no response", "check the machine")
        return Gpus(gpus=(Gpu(index=0, utilisation=host.polls),))

    monkeypatch.setattr(gpu_poller, "open_target", lambda compute, paths: Target())
    monkeypatch.setattr(gpu_poller, "fetch_gpus", ask)
    monkeypatch.setattr(gpu_poller, "_TIMEOUT", 0.05)
    monkeypatch.setattr(gpu_poller, "INTERVAL", 0.3)
    return machine


BOX = Compute("box", "remote", "192.0.2.7", "ada")


def test_one_poll_at_a_time_over_one_connection(machine, tmp_path):
    async def scenario() -> None:
        poller = gpu_poller.GpuPoller(UserPaths(tmp_path))
        first = await asyncio.gather(*(poller.read(BOX) for _ in range(20)))
        assert {reading.state for reading in first} == {"asking"} and machine.polls == 1, "callers do not wait for long"
        machine.released.set()
        reading = await poller.read(BOX)
        assert reading.state == "ok" and reading.gpus is not None and reading.gpus.gpus[0].utilisation == 1
        end = time.monotonic() + 10
        while machine.polls < 4 and time.monotonic() < end:
            await poller.read(BOX)
            await asyncio.sleep(0.01)
        assert machine.polls >= 4 and machine.opened == 1, "over the same connection"
        await poller.disconnect(BOX)
        assert machine.closed == 1

    asyncio.run(scenario())


def test_unresponsive_machine_is_polled_more_slowly(machine, tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(gpu_poller, "_TIMEOUT", 5.0)
    monkeypatch.setattr(gpu_poller, "time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time))
    machine.released.set()

    async def scenario() -> list[float]:
        poller = gpu_poller.GpuPoller(UserPaths(tmp_path))
        assert (await poller.read(BOX)).state == "ok"
        machine.silent = True
        pauses = []
        for _ in range(12):
            clock[0] += 100
            polls = machine.polls
            reading = await poller.read(BOX)
            assert (
                reading.state == "no contact"
                and reading.message == "no response"
                and reading.hint == "check the machine"
            )
            assert reading.gpus is not None, "the last values are kept"
            again = await poller.read(BOX)
            assert again == reading and machine.polls == polls + 1, "not polled again before its time"
            pauses.append(reading.again)
        machine.silent = False
        clock[0] += 100
        assert (await poller.read(BOX)).state == "ok"
        return pauses

    pauses = asyncio.run(scenario())
    assert pauses == sorted(pauses) and pauses[0] == 0.6 and pauses[-1] == 60.0
    assert machine.opened == 13, "a connection that failed is not used again"
