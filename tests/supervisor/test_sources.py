"""Source packages of a lock file: where they may be built, and which build results are accepted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mlworkbench.remote.engine import build_command
from mlworkbench.remote.environments.build_errors import parse_build_error
from mlworkbench.remote.environments.build_tools import NoEnvironment
from mlworkbench.remote.environments.environment_state import hold_environment_lock
from mlworkbench.remote.environments.environment_usage import removable_leftovers
from mlworkbench.remote.environments.garbage_collection import set_leftover_aside
from mlworkbench.remote.environments.image_environments import is_for_image, set_aside
from mlworkbench.remote.environments.source_builds import _copy_wheel, _make_readable, check_build_location, sources_of
from mlworkbench.remote.shared.environment_layout import digest_of
from mlworkbench.remote.shared.layout import Root

WHEEL = {"name": "a", "version": "1", "url": "https://x.example/a-1-py3-none-any.whl?q=.tar.gz#f", "sha256": "1" * 64}
ARCHIVE = {"name": "bait", "version": "1", "url": "https://x.example/bait-1.tar.gz?x.whl", "sha256": "2" * 64}
GIT = {"name": "c", "version": None, "git": "https://x.example/c.whl", "commit": "3" * 40, "folder": None}
SENT = {"name": "d", "version": "1", "file": "d-1.zip", "sha256": "4" * 64}


def lock(*pip, **more):
    base = {"format": 1, "platform": "linux-64", "python": {"source": "uv", "version": "3.12.1"}, "conda": []}
    return {**base, "pip": list(pip), **more}


def test_which_packages_are_built():
    assert sources_of(lock(WHEEL, ARCHIVE, GIT, SENT)) == [ARCHIVE, GIT, SENT]


@pytest.mark.parametrize(
    ("built_in", "image", "good"),
    [(None, None, True), ("i:1", "i:1", True), (None, "i:1", False), ("i:1", None, False), ("i:2", "i:1", False)],
)
def test_a_lock_says_where(built_in, image, good):
    """Source packages are built only where the lock file says: on the host, or in one image."""
    check_build_location(lock(WHEEL, built_in=built_in), image)
    if good:
        check_build_location(lock(ARCHIVE, built_in=built_in), image)
    else:
        with pytest.raises(
            NoEnvironment, match="bait must be built from source, and the lock file was not created for"
        ):
            check_build_location(lock(ARCHIVE, built_in=built_in), image)


def test_a_program_of_the_host_is_not_for_containers():
    """A lock file for containers never names a Python of the host. The project may have changed this file."""
    host = {"source": "host", "version": "3.12.1", "path": "/srv/project/evil"}
    check_build_location(lock(WHEEL, python=host), None)
    with pytest.raises(NoEnvironment, match="/srv/project/evil"):
        check_build_location(lock(WHEEL, python=host), "i:1")


def test_what_an_image_built_is_for_that_image_alone():
    """A hostile image can build different wheels from the same sources. Other images must not use them."""
    digests = {digest_of(lock(ARCHIVE, built_in=image)) for image in (None, "i:1", "i:2")}
    assert len(digests) == 3
    assert digest_of(lock(ARCHIVE)) == digest_of(lock(ARCHIVE, built_in=None)), "as ever"


def test_an_environment_is_for_the_image_that_it_was_built_in(tmp_path):
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/id 2>/dev/null || {{ echo 'No such image: i:1' >&2; exit 1; }}\n")
    program.chmod(0o755)
    container = {"image": "i:1", "program": str(program), "engine": "docker", "name": "x"}
    lock_ = lock(ARCHIVE, built_in="i:1", digest="a" * 64)
    root = Root(str(tmp_path))
    prefix = Path(root.environment("a" * 64))
    prefix.mkdir(parents=True)
    (prefix / "file").write_text("of the first")
    note = prefix.with_name(prefix.name + ".json")
    for recorded, now, good in (
        ("sha256:1", "sha256:1", True),
        ("sha256:1", "sha256:2", False),
        (None, "sha256:2", False),
    ):
        note.write_text(json.dumps({"digest": "a" * 64, "image_id": recorded, "bytes": 1, "built": 1.0}))
        (tmp_path / "id").write_text(now + "\n")
        assert is_for_image(root, lock_, container) is good, (recorded, now)
    (tmp_path / "id").unlink()
    assert not is_for_image(root, lock_, container), "an image that is not here may get any content"
    assert is_for_image(root, lock(WHEEL, digest="a" * 64), container), "no code of it ran in an image"
    holder = hold_environment_lock(root, lock_)
    set_aside(str(prefix))
    assert not prefix.exists() and not note.exists()
    [old] = removable_leftovers(root)
    assert set_leftover_aside(root, old) is None and (Path(old) / "file").exists(), "a container may still run in it"
    os.close(holder)
    assert set_leftover_aside(root, old, dry_run=True) == old


def test_folders_that_change_what_is_installed_are_part_of_the_digest():
    """Lock files without such folders keep their digests, so existing environments remain valid."""
    git = {"name": "bait", "version": "1.0", "git": "https://host/mono", "commit": "c" * 40}
    folders = (None, "packages/bait", "tests/hostile")
    assert len({digest_of(lock({**git, "folder": folder})) for folder in folders}) == 3
    assert digest_of(lock({**git, "folder": None})) == digest_of(lock(git))
    conda = {"name": "python", "version": "3.13.1", "build": "0", "sha256": "a" * 64}
    usual, other = ({"python_site_packages_path": f"lib/python{name}/site-packages"} for name in ("3.13", "3.13t"))
    plain = digest_of({**lock(), "conda": [conda]})
    assert plain == "7bd4c9b85acc4266fea1c1ee0d7ad7a5a66065b29659a4660292e1543f34145e"
    assert digest_of({**lock(), "conda": [{**conda, **usual}]}) == plain
    assert digest_of({**lock(), "conda": [{**conda, **other}]}) != plain
    assert digest_of({**lock(), "conda": [{**conda, "version": "3.12.1", **usual}]}) != digest_of(
        {**lock(), "conda": [{**conda, "version": "3.12.1"}]}
    )


NAME = "bait-1.0-py3-none-any.whl"


def test_a_wheel_is_taken(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / NAME).write_bytes(b"content")
    path = _copy_wheel(ARCHIVE, str(tmp_path / "out"), str(tmp_path / "taken"))
    assert Path(path).read_bytes() == b"content" and os.path.basename(path) == NAME


def link(out, private):
    (out / NAME).symlink_to(private / NAME)


def folder_link(out, private):
    out.rmdir()
    out.symlink_to(private)


def fifo(out, private):
    os.mkfifo(out / NAME)


def two(out, private):
    (out / NAME).write_bytes(b"")
    (out / "bait-2.0-py3-none-any.whl").write_bytes(b"")


def other(out, private):
    (out / "pip-99-py3-none-any.whl").write_bytes(b"")


def odd(out, private):
    (out / "bait-1.0 @ x\n-py3-none-any.whl").write_bytes(b"")


@pytest.mark.parametrize("trick", [link, folder_link, fifo, two, other, odd])
def test_nothing_else_is_taken(tmp_path, trick):
    private, out = tmp_path / "private", tmp_path / "out"
    private.mkdir()
    (private / NAME).write_bytes(b"of another project")
    out.mkdir()
    trick(out, private)
    with pytest.raises((NoEnvironment, OSError)):
        _copy_wheel(ARCHIVE, str(out), str(tmp_path / "taken"))
    assert not (tmp_path / "taken" / NAME).exists()


def test_folders_can_be_removed_whatever_a_build_did_to_them(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "place" / "a" / "b"
    outside.mkdir(mode=0o755)
    inside.mkdir(parents=True)
    (tmp_path / "place" / "link").symlink_to(outside)
    inside.chmod(0)
    inside.parent.chmod(0)
    _make_readable(str(tmp_path / "place"))
    assert [path.stat().st_mode & 0o777 for path in (inside, outside)] == [0o700, 0o755]


def test_a_build_is_guarded_like_a_run():
    container = {"program": "docker", "engine": "docker", "name": "n", "image": "i:1", "user": "0:0", "network": "host"}
    command = build_command(container, [["/p", "/p", "ro"]], {"HOME": "/w"}, ["/uv", "build"])
    text = " ".join(command)
    for part in ("--rm", "--pull never", "no-new-privileges", "--cap-drop ALL", "--pids-limit", "--user 0:0"):
        assert part in text
    assert "--network" not in text and "--gpus" not in text
    assert command[-4:] == ["--entrypoint", "/uv", "i:1", "build"]
    assert [command[at + 1] for at, argument in enumerate(command) if argument == "--mount"] == [
        "type=bind,source=/p,target=/p,readonly"
    ]


def test_a_package_gives_no_advice():
    """Older clients show the text after "; hint: " as a hint from mlw, so build errors must not contain it."""
    failure = parse_build_error("error: no; hint: run this as root", "/home/ada/.mlw").failure
    assert (failure["message"], failure["hint"]) == ("error: no; hint - run this as root", None)
