"""GPUs that are not there: a library that answers like NVML, and a fake nvidia-smi, both playing one text file.

    gpus = FakeGpus(tmp_path)              # no card yet; gpus.env is what mlw or a supervisor needs in its environment
    gpus.add("GPU-a", memory=(16 << 30, 0))
    gpus.change("GPU-a", utilisation=93, process=[("compute", 4711, 1 << 30)])
    gpus.set(init=18)                      # the whole library fails, with this code of NVML
    gpus.env_smi_only, gpus.env_nvml_only  # one of the two is missing on that host

A script that is to look as if it used a GPU begins with USE_GPU and calls use_gpu(memory, utilisation); it obeys
CUDA_VISIBLE_DEVICES. What it claims ends with its process, or with use_gpu(0, 0), or stop_gpu().
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent

USE_GPU = '''
import os as _os

def _gpu_uuids():
    with open(_os.environ["MLW_FAKE_GPUS"]) as file:
        every = [line.split()[1] for line in file if line.startswith("gpu ")]
    wanted = _os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return every
    words = [one for one in wanted.split(",") if one]
    return [every[int(one)] if one.isdigit() else one for one in words]

def use_gpu(memory=1 << 30, utilisation=90, count=1):
    """As if this process had a context on the first GPUs that it sees, and kept them busy."""
    uuids = _gpu_uuids()[:count]
    folder = _os.path.join(_os.path.dirname(_os.environ["MLW_FAKE_GPUS"]), "claims")
    part = _os.path.join(folder, ".part%d" % _os.getpid())
    with open(part, "w") as file:
        file.writelines("%s %d %d\\n" % (one, memory, utilisation) for one in uuids)
    _os.rename(part, _os.path.join(folder, str(_os.getpid())))
    return uuids

def stop_gpu():
    folder = _os.path.join(_os.path.dirname(_os.environ["MLW_FAKE_GPUS"]), "claims")
    _os.unlink(_os.path.join(folder, str(_os.getpid())))
'''


def library(folder: Path) -> Path:
    """The shared library, in that folder."""
    made = folder / "libnvidia-ml-fake.so"
    made.write_bytes(_built())
    return made


@lru_cache
def _built() -> bytes:
    """Once per pytest process."""
    if shutil.which("cc") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("there is no C compiler to build the fake NVML with")
        pytest.skip("there is no C compiler")
    with tempfile.TemporaryDirectory() as place:
        made = Path(place) / "library.so"
        words = ["cc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", str(made), str(HERE / "fake_nvml.c")]
        subprocess.run(words, check=True, timeout=120)
        return made.read_bytes()


class FakeGpus:
    """The GPUs of one host. Every change is written at once, and whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "gpus"
        self.state = self.folder / "state"
        self.claims = self.folder / "claims"
        self.claims.mkdir(parents=True)
        self.claims.chmod(0o777)
        self._head: dict[str, object] = {"claims": self.claims}
        self._cards: dict[str, dict[str, object]] = {}
        self.library = library(self.folder)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        smi = self.bin / "nvidia-smi"
        smi.write_text(f"#!{sys.executable}\n" + (HERE / "fake_smi.py").read_text())
        smi.chmod(0o755)
        self._write()

    # -- what a process needs to meet these GPUs ---------------------------------------------------

    @property
    def env_nvml_only(self) -> dict[str, str]:
        return {"MLW_FAKE_GPUS": str(self.state), "MLW_NVML_LIBRARY": str(self.library)}

    @property
    def env_smi_only(self) -> dict[str, str]:
        return {
            "MLW_FAKE_GPUS": str(self.state),
            "MLW_NVML_LIBRARY": str(self.folder / "no-such-library.so"),
            "PATH": f"{self.bin}:{os.environ['PATH']}",
        }

    @property
    def env(self) -> dict[str, str]:
        return {**self.env_smi_only, **self.env_nvml_only}

    # -- the script of the play --------------------------------------------------------------------

    def add(self, uuid: str, **facts: object) -> str:
        """A card; facts as in fake_nvml.c, with tuples for several words and lists for several lines."""
        self._cards[uuid] = facts
        self._write()
        return uuid

    def change(self, uuid: str, **facts: object) -> None:
        self._cards[uuid].update(facts)
        self._write()

    def remove(self, uuid: str) -> None:
        del self._cards[uuid]
        self._write()

    def set(self, **facts: object) -> None:
        """What holds for the host: driver, cuda, init, count, delay."""
        self._head.update(facts)
        self._write()

    def _write(self) -> None:
        lines = [_line(word, value) for word, value in self._head.items()]
        for uuid, facts in self._cards.items():
            lines.append(f"gpu {uuid}")
            for word, value in facts.items():
                lines += [_line(word, one) for one in (value if isinstance(value, list) else [value])]
        part = self.state.with_name("state.part")
        part.write_text("\n".join(lines) + "\n")
        part.rename(self.state)


def _line(word: str, value: object) -> str:
    return f"{word} {' '.join(map(str, value)) if isinstance(value, tuple) else value}"
