"""Fake GPUs: a library that answers like NVML and a fake nvidia-smi, both driven by one text file.

    gpus = FakeGpus(tmp_path)              # no GPU yet; start mlw or a supervisor with the variables in gpus.env
    uuid = gpus.add(memory=(16 << 30, 0))
    gpus.change(uuid, utilisation=93, process=[("compute", 4711, 1 << 30)])
    gpus.set(init=18)                      # the whole library fails with this NVML error code
    gpus.env_smi_only, gpus.env_nvml_only  # variables for hosts with only nvidia-smi or only NVML

A script that pretends to use a GPU begins with USE_GPU and calls ``use_gpu(memory, utilisation)``, which
honors CUDA_VISIBLE_DEVICES. The process uses the GPU until it exits or calls ``stop_gpu()``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

_SOURCE = Path(__file__).with_name("fake_nvml.c")
_SMI = Path(__file__).with_name("fake_smi.py")

USE_GPU = '''
import os as _os

def _gpu_uuids():
    with open(_os.environ["MLW_FAKE_GPUS"]) as file:
        every = [line.split()[1] for line in file if line.startswith("gpu ")]
    wanted = _os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return every
    words = [word for word in wanted.split(",") if word]
    return [every[int(word)] if word.isdigit() else word for word in words]

def use_gpu(memory=1 << 30, utilisation=90, count=1):
    """As if this process had a context on the first GPUs that it sees, and kept them busy."""
    uuids = _gpu_uuids()[:count]
    folder = _os.path.join(_os.path.dirname(_os.environ["MLW_FAKE_GPUS"]), "claims")
    part = _os.path.join(folder, ".part%d" % _os.getpid())
    with open(part, "w") as file:
        file.writelines("%s %d %d\\n" % (uuid, memory, utilisation) for uuid in uuids)
    _os.rename(part, _os.path.join(folder, str(_os.getpid())))
    return uuids

def stop_gpu():
    folder = _os.path.join(_os.path.dirname(_os.environ["MLW_FAKE_GPUS"]), "claims")
    _os.unlink(_os.path.join(folder, str(_os.getpid())))
'''


class CompilerNotFound(RuntimeError):
    """Error raised if there is no C compiler to build the fake NVML library."""

    def __init__(self) -> None:
        super().__init__("no C compiler: 'cc' is not on PATH; hint: install one, such as gcc, to use FakeGpus")


class FakeGpus:
    """Fake GPUs of one host. Every change is written immediately and atomically, by a rename."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "gpus"
        self.state = self.folder / "state"
        self.claims = self.folder / "claims"
        self.claims.mkdir(parents=True)
        self.claims.chmod(0o777)  # runs of other users write claims, too
        self._head: dict[str, object] = {"claims": self.claims}
        self._cards: dict[str, dict[str, object]] = {}
        self.library = self.folder / "libnvidia-ml-fake.so"
        self.library.write_bytes(_compiled())
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        smi = self.bin / "nvidia-smi"
        smi.write_text(f"#!{sys.executable}\n{_SMI.read_text()}")
        smi.chmod(0o755)
        self._write()

    @property
    def env_nvml_only(self) -> dict[str, str]:
        """Environment variables for a host with NVML only."""
        return {"MLW_FAKE_GPUS": str(self.state), "MLW_NVML_LIBRARY": str(self.library)}

    @property
    def env_smi_only(self) -> dict[str, str]:
        """Environment variables for a host with nvidia-smi but without NVML."""
        return {
            "MLW_FAKE_GPUS": str(self.state),
            "MLW_NVML_LIBRARY": str(self.folder / "no-such-library.so"),
            "PATH": f"{self.bin}:{os.environ['PATH']}",
        }

    @property
    def env(self) -> dict[str, str]:
        """Environment variables for a host with both NVML and nvidia-smi."""
        return {**self.env_smi_only, **self.env_nvml_only}

    def add(self, uuid: str | None = None, **facts: object) -> str:
        """Add a GPU and return its UUID.

        See fake_nvml.c for the facts: a tuple gives several values, and a list gives several lines. The
        default UUID is unique, because GPU leases apply to the whole machine, even across parallel tests.
        """
        uuid = uuid or f"GPU-{os.urandom(8).hex()}"
        self._cards[uuid] = facts
        self._write()
        return uuid

    def change(self, uuid: str, **facts: object) -> None:
        """Change facts about a GPU."""
        self._cards[uuid].update(facts)
        self._write()

    def remove(self, uuid: str) -> None:
        """Remove a GPU, as if it had fallen off the bus."""
        del self._cards[uuid]
        self._write()

    def set(self, **facts: object) -> None:
        """Set facts about the host: driver, cuda, init, count, and delay."""
        self._head.update(facts)
        self._write()

    def _write(self) -> None:
        lines = [_line(word, value) for word, value in self._head.items()]
        for uuid, facts in self._cards.items():
            lines.append(f"gpu {uuid}")
            for word, value in facts.items():
                lines += [_line(word, item) for item in (value if isinstance(value, list) else [value])]
        part = self.state.with_name("state.part")
        part.write_text("\n".join(lines) + "\n")
        part.rename(self.state)


def _line(word: str, value: object) -> str:
    return f"{word} {' '.join(map(str, value)) if isinstance(value, tuple) else value}"


@lru_cache
def _compiled() -> bytes:
    """Return the shared library, compiled once per process."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise CompilerNotFound
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "library.so"
        command = [compiler, "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", str(library), str(_SOURCE)]
        subprocess.run(command, check=True, timeout=120)
        return library.read_bytes()
