"""Source packages for container targets are built inside the run's image, not on the host."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

from tests.e2e.test_environment import set_compute_key
from tests.machines.channel import depend

PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "bait"
version = "1.0"
"""
# A build backend that records where it runs and tries to reach files outside the build.
BACKEND = """
import json, os, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    found = {"uid": os.getuid(), "secret": os.environ.get("AWS_SECRET_ACCESS_KEY"), "pid": os.getpid()}
    status = open("/proc/self/status").read().splitlines()
    found["privileges"] = [line.split()[1] for line in status if line.startswith(("CapEff", "NoNewPrivs"))]
    for name, path in (("home", HOME), ("store", STORE + "/runs"), ("cache", STORE + "/cache")):
        found[name] = os.path.exists(path)
    try:
        open(MARK, "w").close()
    except OSError:
        pass
    for path in (PREFIX_OF, *json.loads(SHARED)):
        for base, _, names in os.walk(path):
            for one in names if ".tmp/source-" not in base else ():
                try:
                    open(os.path.join(base, one), "a").close()
                    found["written"] = os.path.join(base, one)
                except OSError:
                    pass
    text = "FOUND = %r\\n" % (found,)
    info = "bait-1.0.dist-info"
    files = {"bait.py": text, info + "/METADATA": "Metadata-Version: 2.1\\nName: bait\\nVersion: 1.0\\n"}
    files[info + "/WHEEL"] = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    files[info + "/RECORD"] = "".join(name + ",,\\n" for name in files)
    with zipfile.ZipFile(os.path.join(folder, "bait-1.0-py3-none-any.whl"), "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    os.mkdir(os.path.join(folder, "closed"))
    os.chmod(os.path.join(folder, "closed"), 0)
    return "bait-1.0-py3-none-any.whl"
"""


def sdist(path: Path, **files: str) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"bait-1.0/{name.replace('_', '.', 1)}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))


def test_build_sees_only_image(laptop, engine, channel, tmp_path):
    laptop.use_engine(engine)
    root = laptop.project("demo", say="import bait, json\nprint(json.dumps(bait.FOUND))\n")
    mark = tmp_path / "mark"
    names = {"MARK": str(mark), "HOME": str(laptop.home), "STORE": str(laptop.store)}
    names |= {"PREFIX_OF": str(laptop.store / "envs"), "SHARED": json.dumps([str(laptop.store / "tools")])}
    head = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    sdist(root / "bait-1.0.tar.gz", pyproject_toml=PROJECT, backend_py=head + BACKEND)
    depend(root, channel, "./bait-1.0.tar.gz")
    set_compute_key(root, "docker", "baseDockerImage", engine.image)
    done = laptop.mlw("submit", "-c", "docker", "say.py", cwd=root, env={"AWS_SECRET_ACCESS_KEY": "aws-71c2"})
    assert not mark.exists(), "the build ran on the machine itself"
    assert done.code == 0, done
    report = json.loads(done.out)
    assert (report["secret"], report["home"], report["store"], report["cache"]) == (None, False, False, False), report
    assert "written" not in report, "environments and tools are shared with other projects"
    assert report["privileges"] == ["0" * 16, "1"], "no capabilities, no new privileges"
    assert f"in image {engine.image}" in done.err, done.err
    assert engine.containers() == [], "none is left"
    again = laptop.mlw("submit", "-c", "docker", "say.py", cwd=root)
    assert again.out == done.out and "building" not in again.err, "it is built once"
    assert [path.name for path in (laptop.store / "envs").glob("*.tmp")] == []
    assert laptop.mlw("environment", "remove", "--unused", "-y", cwd=root).code == 0
    prepared = laptop.mlw("experiment", "prepare", "-c", "docker", cwd=root)
    assert prepared.code == 0 and f"in image {engine.image}" in prepared.err, prepared
    assert not mark.exists()


VARIANT = """
import os
def build_wheel(folder, config_settings=None, metadata_directory=None):
    import zipfile
    info = "bait-1.0.dist-info"
    files = {"bait.py": "FOUND = %r\\n" % os.environ.get("VARIANT")}
    files[info + "/METADATA"] = "Metadata-Version: 2.1\\nName: bait\\nVersion: 1.0\\n"
    files[info + "/WHEEL"] = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    files[info + "/RECORD"] = "".join(name + ",,\\n" for name in files)
    with zipfile.ZipFile(os.path.join(folder, "bait-1.0-py3-none-any.whl"), "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    return "bait-1.0-py3-none-any.whl"
"""


def test_built_package_is_not_reused_by_image_with_same_tag(laptop, engine, channel):
    laptop.use_engine(engine)
    root = laptop.project("demo", say="import bait\nprint(bait.FOUND)\n")
    sdist(root / "bait-1.0.tar.gz", pyproject_toml=PROJECT, backend_py=VARIANT)
    depend(root, channel, "./bait-1.0.tar.gz")
    set_compute_key(root, "docker", "baseDockerImage", "builder:1")
    for variant in ("first", "second"):
        engine.load_image("builder:1", f"ENV VARIANT={variant}")
        done = laptop.mlw("submit", "-c", "docker", "say.py", cwd=root)
        assert (done.code, done.out) == (0, f"{variant}\n"), done
    again = laptop.mlw("submit", "-c", "docker", "say.py", cwd=root)
    assert again.out == "second\n" and "building" not in again.err, again
