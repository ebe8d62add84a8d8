"""The fixtures. A plugin of all tests (see tests/conftest.py); nothing starts before a test asks for it."""

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
from tests.machines.machine import Machine, Wanted
from tests.machines.network import Switch
from tests.machines.place import Place
from tests.machines.podman import Podman
from tests.machines.programs import need_all
from tests.machines.registry import Registry

if TYPE_CHECKING:
    from tests.e2e.elsewhere import Away, SharedTarget

MakeMachine = Callable[..., Machine]
NEEDED = ("sshd", "ssh", "ssh-keygen", "ip", "tc", "ss", "nft", "unshare", "nsenter", "setpriv", "tini", "perl", "ps")


@pytest.fixture(scope="session")
def stand() -> Iterator[Place]:
    need_all("ip", "unshare", "nsenter", "umount")
    taken = Place()
    yield taken
    taken.close()


@pytest.fixture(scope="session")
def switch(stand: Place) -> Iterator[Switch]:
    made = Switch(stand)
    yield made
    made.close()


@pytest.fixture(scope="session")
def session_engine(stand: Place, switch: Switch) -> Iterator[Engine]:
    """For fixtures of a wider scope; a test takes `engine`."""
    need_all(*engines.programs())
    made = Engine(stand, switch)
    made.start()
    made.load_image()
    yield made
    made.close()


@pytest.fixture
def engine(session_engine: Engine) -> Iterator[Engine]:
    """A real Docker engine. A test may stop or kill it: the next test finds it running, without containers."""
    session_engine.tidy()
    yield session_engine
    session_engine.tidy()


@pytest.fixture(scope="session")
def session_registry(stand: Place, session_engine: Engine) -> Iterator[Registry]:
    need_all("docker-registry")
    made = Registry(stand, session_engine)
    yield made
    made.stop()


@pytest.fixture
def registry(engine: Engine, session_registry: Registry) -> Registry:
    """A private registry that has an image which the engine has not."""
    session_registry.forget()
    return session_registry


@pytest.fixture(scope="session")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Channel:
    """A conda channel on this machine, with a real Python in it."""
    return usual(tmp_path_factory.mktemp("conda") / "channel")


@pytest.fixture(scope="session")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An `Index`: a mirror of uv's Pythons on this machine, with a real one in it: `use_mirror(laptop, mirror)`."""
    from tests.e2e.package_index import serving  # these modules import what loads this plugin
    from tests.machines.python_mirror import write_mirror

    folder = tmp_path_factory.mktemp("mirror")
    (folder / "pythons").mkdir()
    with serving(folder) as made:
        write_mirror(folder / "pythons", f"{made.url}/pythons")
        yield made


@pytest.fixture(scope="session")
def session_podman(stand: Place) -> Podman:
    need_all("podman", "runc", "conmon")
    return Podman(stand)


@pytest.fixture
def podman(session_podman: Podman) -> Iterator[Podman]:
    """podman as root with a storage of its own: `laptop.env.update(podman.env)`."""
    session_podman.tidy()
    yield session_podman
    session_podman.tidy()


@pytest.fixture
def machine(request: pytest.FixtureRequest, switch: Switch) -> Iterator[MakeMachine]:
    """machine(password="pw", docker="yes", …) → a host of this test's own. See `Wanted` for the options."""
    yield from _factory(request, switch, "engine")


@pytest.fixture(scope="module")
def module_machine(request: pytest.FixtureRequest, switch: Switch) -> Iterator[MakeMachine]:
    """The same for fixtures of a module."""
    yield from _factory(request, switch, "session_engine")


@pytest.fixture(scope="session")
def _targets(switch: Switch) -> Iterator[dict[object, SharedTarget]]:
    made: dict[object, SharedTarget] = {}
    yield made
    for one in made.values():
        one.close()


@pytest.fixture
def shared_target(
    request: pytest.FixtureRequest,
    switch: Switch,
    tmp_path_factory: pytest.TempPathFactory,
    _targets: dict[object, SharedTarget],
) -> Iterator[Callable[..., Away]]:
    """shared_target("remote", sshd="…") → a laptop attached to a machine, both as they were after the attach.

    For tests that change nothing there but the home, the processes and the network: the machine is not theirs alone.
    """
    from tests.e2e.elsewhere import SharedTarget  # The plugin is loaded before it.

    need_all(*NEEDED)
    used = []

    def give(kind: str = "remote", **wanted: Any) -> Away:
        what = Wanted(**wanted, docker="yes" if kind == "remotedocker" else "no")
        engine = request.getfixturevalue("engine") if kind == "remotedocker" else None
        if (kind, what) not in _targets:
            place = tmp_path_factory.mktemp("shared")
            _targets[kind, what] = SharedTarget(place, Machine(switch, engine, what), kind)
        used.append(_targets[kind, what])
        return used[-1].renew()

    yield give
    for target in used:
        target.end()


def _factory(request: pytest.FixtureRequest, switch: Switch, engine_fixture: str) -> Iterator[MakeMachine]:
    need_all(*NEEDED)
    made: list[Machine] = []

    def make(**wanted: Any) -> Machine:
        what = Wanted(**wanted)
        engine = request.getfixturevalue(engine_fixture) if what.docker in ("yes", "both", "denied") else None
        made.append(Machine(switch, engine, what))
        return made[-1]

    yield make
    for machine in reversed(made):
        machine.close()


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    from tests.conftest import end_processes  # The plugin is loaded by that module.

    someone = Laptop(tmp_path)
    yield someone
    end_processes(tmp_path)
    shutil.rmtree(someone.runtime, ignore_errors=True)
