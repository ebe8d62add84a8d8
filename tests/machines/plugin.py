"""Pytest plugin with the fixtures for machines. tests/conftest.py loads it. Everything starts on first use."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.machines import engine as engines
from tests.machines.channel import Channel, usual
from tests.machines.engine import Engine
from tests.machines.laptop import Laptop
from tests.machines.machine import Machine, MachineOptions
from tests.machines.network import Switch
from tests.machines.podman import Podman
from tests.machines.programs import need_all
from tests.machines.registry import Registry
from tests.machines.sandbox import Sandbox

if TYPE_CHECKING:
    from tests.e2e.remote_target import RemoteTarget, SharedTarget

MakeMachine = Callable[..., Machine]
NEEDED = ("sshd", "ssh", "ssh-keygen", "ip", "tc", "ss", "nft", "unshare", "nsenter", "setpriv", "tini", "perl", "ps")


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    need_all("ip", "unshare", "nsenter", "umount")
    taken = Sandbox()
    yield taken
    taken.close()


@pytest.fixture(scope="session")
def switch(sandbox: Sandbox) -> Iterator[Switch]:
    new_switch = Switch(sandbox)
    yield new_switch
    new_switch.close()


@pytest.fixture(scope="session")
def session_engine(sandbox: Sandbox, switch: Switch) -> Iterator[Engine]:
    """An engine for fixtures of a wider scope; tests use `engine`."""
    need_all(*engines.programs())
    new_engine = Engine(sandbox, switch)
    new_engine.start()
    new_engine.load_image()
    yield new_engine
    new_engine.close()


@pytest.fixture
def engine(session_engine: Engine) -> Iterator[Engine]:
    """A real Docker engine. Tests may stop or kill it; the next test gets it running, without containers."""
    session_engine.clean_up()
    yield session_engine
    session_engine.clean_up()


@pytest.fixture(scope="session")
def session_registry(sandbox: Sandbox, session_engine: Engine) -> Iterator[Registry]:
    need_all("docker-registry")
    new_registry = Registry(sandbox, session_engine)
    yield new_registry
    new_registry.stop()


@pytest.fixture
def registry(engine: Engine, session_registry: Registry) -> Registry:
    """A private registry with an image that the engine does not have."""
    session_registry.forget()
    return session_registry


@pytest.fixture(scope="session")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Channel:
    """A conda channel on this machine, with a real Python."""
    return usual(tmp_path_factory.mktemp("conda") / "channel")


@pytest.fixture(scope="session")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local mirror of uv's Pythons with a real Python, as an `Index`. Call `use_mirror(laptop, mirror)` to use it."""
    from tests.e2e.package_index import serve_index  # these modules import the module that loads this plugin
    from tests.machines.python_mirror import write_mirror

    folder = tmp_path_factory.mktemp("mirror")
    (folder / "pythons").mkdir()
    with serve_index(folder) as index:
        write_mirror(folder / "pythons", f"{index.url}/pythons")
        yield index


@pytest.fixture(scope="session")
def session_podman(sandbox: Sandbox) -> Podman:
    need_all("podman", "runc", "conmon")
    return Podman(sandbox)


@pytest.fixture
def podman(session_podman: Podman) -> Iterator[Podman]:
    """podman as root with separate storage: `laptop.env.update(podman.env)`."""
    session_podman.clean_up()
    yield session_podman
    session_podman.clean_up()


@pytest.fixture
def machine(request: pytest.FixtureRequest, switch: Switch) -> Iterator[MakeMachine]:
    """machine(password="pw", docker="yes", …) → a host for this test. See `MachineOptions` for the options."""
    yield from _factory(request, switch, "engine")


@pytest.fixture(scope="module")
def module_machine(request: pytest.FixtureRequest, switch: Switch) -> Iterator[MakeMachine]:
    """The `machine` factory for fixtures of module scope."""
    yield from _factory(request, switch, "session_engine")


@pytest.fixture(scope="session")
def _targets(switch: Switch) -> Iterator[dict[object, SharedTarget]]:
    targets: dict[object, SharedTarget] = {}
    yield targets
    for target in targets.values():
        target.close()


@pytest.fixture
def shared_target(
    request: pytest.FixtureRequest,
    switch: Switch,
    tmp_path_factory: pytest.TempPathFactory,
    _targets: dict[object, SharedTarget],
) -> Iterator[Callable[..., RemoteTarget]]:
    """shared_target("remote", sshd="…") → a laptop attached to a machine, reset to the state after the attach.

    For tests that change only the home, processes, and network of the machine, because several tests share it.
    """
    from tests.e2e.remote_target import SharedTarget  # Pytest loads this plugin before that module.

    need_all(*NEEDED)
    used = []

    def give(kind: str = "remote", **options: Any) -> RemoteTarget:
        what = MachineOptions(**options, docker="yes" if kind == "remotedocker" else "no")
        engine = request.getfixturevalue("engine") if kind == "remotedocker" else None
        if (kind, what) not in _targets:
            place = tmp_path_factory.mktemp("shared")
            _targets[kind, what] = SharedTarget(place, Machine(switch, engine, what), kind)
        used.append(_targets[kind, what])
        return used[-1].reset()

    yield give
    for target in used:
        target.end()


def _factory(request: pytest.FixtureRequest, switch: Switch, engine_fixture: str) -> Iterator[MakeMachine]:
    need_all(*NEEDED)
    machines: list[Machine] = []

    def make(**options: Any) -> Machine:
        what = MachineOptions(**options)
        engine = request.getfixturevalue(engine_fixture) if what.docker in ("yes", "both", "denied") else None
        machines.append(Machine(switch, engine, what))
        return machines[-1]

    yield make
    for machine in reversed(machines):
        machine.close()


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    from tests.conftest import end_processes  # That module loads this plugin.

    new_laptop = Laptop(tmp_path)
    yield new_laptop
    end_processes(tmp_path)
    shutil.rmtree(new_laptop.runtime, ignore_errors=True)
