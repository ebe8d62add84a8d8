"""A Python from a project's conda channel never runs on the host of a container target."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest

from tests.e2e.test_environment import set_compute_key
from tests.machines.channel import SHORT, Channel, depend

# Writes a marker file, which only works on the host, and starts the real Python.
PROGRAM = """#!/bin/sh
(echo "$@" >>{mark}) 2>/dev/null
exec "${{0%/*}}/python{short}" "$@"
"""
SCRIPT = """
import json, os, subprocess, sys, importlib.util
import bait
tool = os.path.join(sys.prefix, "bin", "bait-tool")
print(json.dumps({
    "place": os.path.relpath(bait.__file__, sys.prefix),
    "compiled": [os.path.exists(importlib.util.cache_from_source(one)) for one in (bait.__file__, json.__file__)],
    "tool": subprocess.run([tool], stdout=subprocess.PIPE, check=True).stdout.decode().strip(),
}))
"""


def wheel(folder: Path) -> None:
    """Build a package with a module and a program."""
    info = "bait-1.0.dist-info"
    files = {
        "bait.py": "def main():\n    print('bait')\n",
        info + "/METADATA": "Metadata-Version: 2.1\nName: bait\nVersion: 1.0\n",
        info + "/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        info + "/entry_points.txt": "[console_scripts]\nbait-tool = bait:main\n",
    }
    files[info + "/RECORD"] = "".join(f"{name},,\n" for name in [*files, info + "/RECORD"])
    with zipfile.ZipFile(folder / "bait-1.0-py3-none-any.whl", "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)


@pytest.fixture
def hostile(tmp_path: Path) -> tuple[Channel, Path]:
    """A channel whose Python writes to a file on the host, and that file."""
    mark = tmp_path / "mark"
    channel = Channel(tmp_path / "hostile")
    channel.add_python(program=PROGRAM.format(mark=mark, short=SHORT).encode(), compiled=False)
    channel.add("words", "1.0", {"share/words.txt": b"x"}, noarch="generic")
    return channel.write(), mark


def test_interpreter_runs_only_in_container(laptop, engine, hostile):
    channel, mark = hostile
    laptop.use_engine(engine)
    root = laptop.project("demo", say=SCRIPT)
    wheel(root)
    depend(root, channel, "./bait-1.0-py3-none-any.whl", conda=("words",))
    set_compute_key(root, "docker", "baseDockerImage", engine.image)
    done = laptop.mlw("submit", "-c", "docker", "say.py", cwd=root)
    assert not mark.exists(), f"the host ran the channel's Python: {mark.read_text()}"
    assert done.code == 0, done
    report = json.loads(done.out)
    assert report["place"] == f"lib/python{SHORT}/site-packages/bait.py", report
    assert report["compiled"] == [True, True], "without bytecode every run would compile again"
    assert report["tool"] == "bait", report


REPLACE_FOLDER = """#!/bin/sh
for last; do :; done
case "$last" in */bytecode/out) rm -r "$last"; ln -s {victim} "$last"; exit 0;; esac
exec "${{0%/*}}/python{short}" "$@"
"""


def test_interpreter_cannot_replace_host_bytecode(laptop, engine, tmp_path):
    """The interpreter replaces the folder of compiled bytecode, which the host reads, with a link."""
    victim = laptop.home / "private" / "__pycache__" / "mine.cpython-311.pyc"
    victim.parent.mkdir(parents=True)
    victim.write_bytes(b"private code")
    channel = Channel(tmp_path / "hostile")
    channel.add_python(program=REPLACE_FOLDER.format(victim=victim.parent.parent, short=SHORT).encode())
    channel.add("words", "1.0", {"share/words.txt": b"x"}, noarch="generic")
    laptop.use_engine(engine)
    root = laptop.project("demo", say="print('ran')")
    depend(root, channel.write(), conda=("words",))
    set_compute_key(root, "docker", "baseDockerImage", engine.image)
    done = laptop.mlw("submit", "-c", "docker", "say.py", cwd=root)
    assert victim.read_bytes() == b"private code"
    assert done.code != 0 and "expected a folder" in done.err, done


def test_package_cannot_write_outside_environment(laptop, engine, tmp_path):
    """py-rattler accepts ".." in a package's list of files.

    The listed path leads to the content in the unpacked package, but out of the environment on installation.
    """
    outside = tmp_path / "outside"
    outside.mkdir()
    deep, target = "/".join("d" * 20), str(outside / "keys")
    files = {target[1:]: b"key", deep + "/x": b"x"}
    channel = Channel(tmp_path / "hostile")
    listed = {target[1:]: "door" + "/.." * 20 + target}
    channel.add("bad", "1.0", files, noarch="generic", unlisted={"door": deep}, listed=listed)
    channel.add_python()
    laptop.use_engine(engine)
    root = laptop.project("demo", say=SCRIPT)
    depend(root, channel.write(), conda=("bad",))
    set_compute_key(root, "docker", "baseDockerImage", engine.image)
    done = laptop.mlw("submit", "-c", "docker", "say.py", cwd=root)
    assert list(outside.iterdir()) == [], "installing a package wrote to another folder"
    assert done.code != 0 and "bad contains a path outside the environment" in done.err, done


def test_package_cannot_write_through_link_of_another_package(laptop, engine, tmp_path):
    """py-rattler treats ./share/z, a link of one package, and share/z, a folder of another, as different paths."""
    outside = tmp_path / "outside"
    outside.mkdir()
    channel = Channel(tmp_path / "hostile")
    channel.add("bad", "1.0", {}, noarch="generic", links={"share/z": str(outside)}, listed={"share/z": "./share/z"})
    files = {"share/z/keys": b"key", "share/large": os.urandom(2_000_000)}  # large, so that the link is created first
    channel.add("other", "1.0", files, noarch="generic")
    channel.add_python()
    laptop.use_engine(engine)
    root = laptop.project("demo", say=SCRIPT)
    depend(root, channel.write(), conda=("bad", "other"))
    set_compute_key(root, "docker", "baseDockerImage", engine.image)
    done = laptop.mlw("submit", "-c", "docker", "say.py", cwd=root)
    assert list(outside.iterdir()) == [], "installing a package wrote to another folder"
    assert done.code != 0 and "bad contains a path outside the environment" in done.err, done
