"""Build a small Debian image in about a second without a network: this computer's own files as a tar stream."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import subprocess
import tarfile
from typing import IO

from tests.machines.programs import Failed, environment

IMAGE = "mlw-debian:1"
PROGRAMS = (
    "dash bash env ls cat cp mv rm mkdir chmod ln sleep tar gzip id head tail grep sed tee touch uname nproc true false"
    " sha256sum git ps kill mkfifo stat dd timeout whoami"
).split()
LIBRARIES = (
    "libnss_[df]*.so.2",
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "libgomp.so.1",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
)
FOLDERS = "usr usr/bin usr/sbin usr/lib usr/lib64 usr/share etc proc sys dev root run var home".split()
NOT_WANTED = {"test", "__pycache__", "idlelib", "lib2to3", "tkinter", "turtledemo"}
ETC = ["/etc/ssl/certs/ca-certificates.crt", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf"]


def import_image(program: list[str], tag: str, *changes: str) -> str:
    """Import the image. `program` is the docker or podman command line."""
    options = [argument for change in ('CMD ["python3"]', *changes) for argument in ("--change", change)]
    argv = [*program, "import", *options, "-", tag]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdin and process.stderr
        with contextlib.suppress(BrokenPipeError):
            write_image(process.stdin)
            process.stdin.close()
        stderr = process.stderr.read().decode(errors="replace")
    if process.returncode:
        raise Failed(f"{' '.join(argv)}: exit code {process.returncode}\n{stderr}")
    return tag


def write_image(stream: IO[bytes], python: str | None = None) -> None:
    """Write the file system as a tar stream for `docker import -`."""
    python = python or os.path.realpath("/usr/bin/python3")
    version = os.path.basename(python)
    programs = [path for name in PROGRAMS if os.path.exists(path := f"/usr/bin/{name}")] + [python]
    with tarfile.open(fileobj=stream, mode="w|") as tar:
        for name in FOLDERS:
            _folder(tar, name)
        for name in ("tmp", "var/tmp"):
            _folder(tar, name, 0o1777)
        for name in ("bin", "sbin", "lib", "lib64"):
            _link(tar, name, f"usr/{name}")
        for path in [
            *programs,
            *sorted(_libraries(programs, version)),
            *(path for path in ETC if os.path.exists(path)),
        ]:
            _file(tar, path)
        for base in (f"/usr/lib/{version}", "/usr/share/python-wheels"):
            _tree(tar, base)
        for name, to in (("python3", version), ("python", version), ("sh", "dash")):
            _link(tar, f"usr/bin/{name}", to)


def _libraries(programs: list[str], version: str) -> set[str]:
    modules = glob.glob(f"/usr/lib/{version}/lib-dynload/*.so")
    output = subprocess.run(["ldd", *programs, *modules], capture_output=True, text=True).stdout
    libraries = set(
        re.findall(r"(/\S+\.so\S*)", "\n".join(line for line in output.splitlines() if line.startswith("\t")))
    )
    for pattern in LIBRARIES:
        libraries |= set(glob.glob(f"/usr/lib/{os.uname().machine}-linux-gnu/{pattern}"))
    return libraries


def _folder(tar: tarfile.TarFile, name: str, mode: int = 0o755) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    tar.addfile(entry)


def _link(tar: tarfile.TarFile, name: str, to: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, to
    tar.addfile(entry)


def _file(tar: tarfile.TarFile, path: str) -> None:
    inside = re.sub(r"^(bin|sbin|lib|lib64)/", r"usr/\1/", path.lstrip("/"))
    tar.add(os.path.realpath(path), inside, recursive=False)


def _tree(tar: tarfile.TarFile, base: str) -> None:
    for folder, folders, files in os.walk(base):
        folders[:] = [name for name in folders if name not in NOT_WANTED and not name.startswith("config-")]
        for name in files:
            _file(tar, os.path.join(folder, name))
