"""What is started of a project's image to look at it is guarded like a run."""

from __future__ import annotations

import json
import sys

import pytest

from mlworkbench.remote.gpus.doctor import examine
from mlworkbench.remote.images import ask
from mlworkbench.remote.shared.layout import Root
from mlworkbench.targets.container import Engine, probe

DOCKER = """#!{python}
import json, sys
with open({calls!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
print("glibc 2.36")
print("MLW-PYTHON /usr/bin/python3")
"""


@pytest.fixture
def docker(tmp_path):
    path = tmp_path / "docker"
    path.write_text(DOCKER.format(python=sys.executable, calls=str(tmp_path / "calls")))
    path.chmod(0o755)
    return str(path)


def runs(tmp_path):
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    return [call for call in calls if call[0] == "run"]


def guards(call, image):
    options = call[: call.index(image)]
    return {option: options[at + 1] for at, option in enumerate(options[:-1]) if option.startswith("--")}


@pytest.mark.parametrize(("rootless", "user"), [(False, "1000:1001"), (True, "0:0")])
def test_every_probe_of_an_image_is_guarded(tmp_path, docker, rootless, user):
    engine = Engine(docker, rootless=rootless, selinux=True)
    container = probe(engine, 1000, 1001, "evil:1")
    assert ask({"do": "image", **container}) == {"ok": True, "libc": "2.36"}
    found = examine(Root(str(tmp_path)), None, {**container, "gpus": ["all"]})
    assert found["container"]["code"] == 0
    called = runs(tmp_path)
    assert len(called) == 2 + 5  # the C library, the devices; CUDA and four frameworks
    for call in called:
        said = guards(call, "evil:1")
        assert said["--user"] == user and said["--cap-drop"] == "ALL" and said["--network"] == "none", call
        assert int(said["--pids-limit"]) > 0 and said["--pull"] == "never", call
        assert "no-new-privileges" in call and "label=disable" in call and "--rm" in call, call
