"""Containers that inspect a project's image have the same restrictions as a run."""

from __future__ import annotations

import json
import sys

import pytest

from mlworkbench.remote.gpus.gpu_probe import probe_gpu_stack
from mlworkbench.remote.image_facts import inspect_image
from mlworkbench.remote.shared.layout import Root
from mlworkbench.targets.container_plan import Engine, probe

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


def run_calls(tmp_path):
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    return [call for call in calls if call[0] == "run"]


def read_options(call, image):
    options = call[: call.index(image)]
    return {option: options[index + 1] for index, option in enumerate(options[:-1]) if option.startswith("--")}


@pytest.mark.parametrize(("rootless", "user"), [(False, "1000:1001"), (True, "0:0")])
def test_image_probes_are_restricted(tmp_path, docker, rootless, user):
    engine = Engine(docker, rootless=rootless, selinux=True)
    container = probe(engine, 1000, 1001, "evil:1")
    assert inspect_image({"do": "image", **container}) == {"ok": True, "libc": "2.36"}
    report = probe_gpu_stack(Root(str(tmp_path)), None, {**container, "gpus": ["all"]})
    assert report["container"]["code"] == 0
    calls = run_calls(tmp_path)
    assert len(calls) == 2 + 5  # C library and devices, then CUDA and four frameworks
    for call in calls:
        options = read_options(call, "evil:1")
        assert options["--user"] == user and options["--cap-drop"] == "ALL" and options["--network"] == "none", call
        assert int(options["--pids-limit"]) > 0 and options["--pull"] == "never", call
        assert "no-new-privileges" in call and "label=disable" in call and "--rm" in call, call
