"""A project that depends on a source package: no command runs its build script locally without consent."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.package_index import about, sdist, serve_index
from tests.e2e.test_environment import enable_managed_environment, set_compute_key

PROJECT = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
BACKEND = """
import os, zipfile
with open({mark!r}, "a") as file:
    file.write("built\\n")

def build_wheel(folder, settings=None, metadata=None):
    with zipfile.ZipFile(folder + "/greet-2.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("greet.py", "print('hello')")
        wheel.writestr("greet-2.0.dist-info/METADATA", {about!r})
        wheel.writestr("greet-2.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("greet-2.0.dist-info/RECORD", "")
    return "greet-2.0-py3-none-any.whl"
"""


def files(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_no_command_builds_source_packages_locally_without_consent(laptop, engine, tmp_path):
    mark = tmp_path / "mark"
    text = about("greet", "2.0")
    backend = BACKEND.format(mark=str(mark), about=text)
    sdist(
        tmp_path / "index" / "own", "greet", "2.0", {"PKG-INFO": text, "pyproject.toml": PROJECT, "backend.py": backend}
    )
    laptop.use_engine(engine)
    root = laptop.project("demo", train="import greet\n")
    enable_managed_environment(root, "local")
    set_compute_key(root, "docker", "baseDockerImage", engine.image)
    (root / "aml_config" / "conda_dependencies.yml").write_text("dependencies:\n- pip:\n  - greet\n")
    before = files(root)
    with serve_index(tmp_path / "index") as index:
        laptop.env |= {"PIP_INDEX_URL": f"{index.url}/own/simple", "UV_CACHE_DIR": str(tmp_path / "uv")}
        for arguments in (
            ["submit", "-c", "local", "train.py"],
            ["submit", "--dry-run", "-c", "docker", "train.py"],
            ["experiment", "prepare", "-c", "local"],
        ):
            done = laptop.mlw(*arguments, cwd=root)
            assert done.code == 78, done
            assert "greet 2.0 is a source package without static metadata" in done.err, done
            assert "no version has a wheel" in done.err and "--allow-build greet" in done.err, done
        laptop.mlw("project", "doctor", cwd=root)
        dry = laptop.mlw("submit", "--dry-run", "-c", "local", "--allow-build", "greet", "train.py", cwd=root)
        assert dry.code == 78 and "--dry-run does not run build scripts" in dry.err, dry
        assert not mark.exists() and laptop.mlw("settings", "list", "-o", "tsv").out == ""
        done = laptop.mlw("submit", "-c", "local", "--allow-build", "Greet", "train.py", cwd=root)
        assert done.code == 0 and done.out == "hello\n" and mark.exists(), done
        assert "note: greet is now allowed to run its build script on this machine" in done.err
        mark.unlink()
        dry = laptop.mlw("submit", "--dry-run", "-c", "local", "train.py", cwd=root)
        assert dry.code == 0 and '"greet"' in dry.out and not mark.exists(), dry
    assert "allowed-builds\tgreet" in laptop.mlw("settings", "list", "-o", "tsv").out
    assert files(root) == before, "the consent is the user's"
