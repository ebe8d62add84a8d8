"""The process beside a supervisor that measures the run's GPUs and judges at the end.

A process of its own: a driver that hangs must not keep a run from being stopped, and NVML's memory goes with it. It
lives for as long as its supervisor does, and speaks to it in lines of JSON through a pipe.
"""

from __future__ import annotations

import json
import os
import select
import time

from ..launcher import child_environment
from ..run_spec import companion_settings
from ..shared.layout import RunFolder
from ..shared.untrusted import parse_json
from .whose import Owner

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from ..run_spec import Spec
    from .sampler import Sampler

    Facts = Dict[str, Any]

LONGEST = 5.0  # seconds between two looks whether the minute is over
MINUTE = 60.0
_TOLD = ("index", "uuid", "name", "capability", "memory_clock", "bus_id", "memory_total", "memory_free")


class Observer:
    """Of one run. ``uuids``: the GPUs that it holds; None: it holds none, and sees what there is."""

    def __init__(self, run: RunFolder, spec: Spec, facts: Facts, uuids: Optional[List[str]]) -> None:
        self._run = run
        self._spec = spec
        self._facts = facts
        self._uuids = uuids
        self._looked: Facts = {}
        self._packages: Optional[Facts] = None
        self._patience = float(os.environ.get("MLW_GPU_PATIENCE") or MINUTE)
        self._warned = spec.get("gpus") is None  # who did not ask need not be told

    def work(self, said: int, tell: int) -> None:
        """Until the supervisor says that the run has ended, or is no more itself."""
        sampler = self._begin(tell)
        begun = time.monotonic()
        while True:
            if sampler is not None:
                sampler.tick(time.monotonic())
                if not self._warned and time.monotonic() - begun >= self._patience:
                    self._warn(sampler, tell)
            pause = sampler.wait(time.monotonic()) if sampler is not None else LONGEST
            ready, _, _ = select.select([said], [], [], min(pause, LONGEST))
            if ready:
                message = os.read(said, 65536)
                if message:
                    say(tell, {"verdict": self._judge(sampler, parse_json(message))})
                return

    def _begin(self, tell: int) -> Optional[Sampler]:
        from .inventory import look  # noqa: PLC0415 - a machine without a GPU needs none of it
        from .nvml import NoNvml  # noqa: PLC0415
        from .sampler import Sampler  # noqa: PLC0415

        self._looked = look()
        gpus = self._visible()
        if self._uuids is None:
            say(tell, {"gpus": dict(describe(gpus, self._looked), held=False)})
        if not gpus:
            return None
        try:
            return Sampler([gpu["uuid"] for gpu in gpus], self._owner(), self._run.gpu)
        except NoNvml as error:
            self._looked["problem"] = str(error)
            return None

    def _visible(self) -> List[Facts]:
        """The GPUs that the script can see, as far as its variables say."""
        gpus = [gpu for gpu in self._looked["gpus"] if gpu.get("uuid")]
        if self._uuids is not None:
            return [gpu for gpu in gpus if gpu["uuid"] in self._uuids]
        wanted = self._environment().get("CUDA_VISIBLE_DEVICES")
        if wanted is None:
            return gpus
        words = [word.strip() for word in wanted.split(",")]
        seen = [gpu for gpu in gpus if str(gpu["index"]) in words or any(_begins(gpu["uuid"], word) for word in words)]
        return seen or gpus  # hidden from the script, it is still measured: the verdict says why it was not used

    def _environment(self) -> Dict[str, str]:
        if self._spec.get("container"):
            return dict(self._spec["environment"], **(self._spec["container"].get("environment") or {}))
        return child_environment(self._spec, {})

    def _owner(self) -> Owner:
        """The run, as far as processes are concerned."""
        init = None
        if self._spec.get("container"):
            from ..engine import Engine  # noqa: PLC0415 - plain runs have none

            init = Engine(self._spec["container"]).inspect().get("pid") or None
        self._read_packages(init)
        return Owner(self._spec["id"], self._run.path, [self._facts.get("pid")], init, self._application())

    def _application(self) -> Callable[[], Optional[str]]:
        """The Spark application of the run; none of any other."""
        if companion_settings(self._spec, "spark") is None:
            return lambda: None
        from ..spark.note import application_of  # noqa: PLC0415 - other runs have none

        return lambda: application_of(self._run)

    def _read_packages(self, init: Optional[int]) -> None:
        """Now: at the end, the container's files are gone."""
        from .evidence import frameworks_of  # noqa: PLC0415 - a machine without a GPU needs none of it

        own = os.path.dirname(os.path.dirname(self._run.path))
        if not self._spec.get("container") or self._spec["commands"][-1]["argv"][0].startswith(own + os.sep):
            self._packages = frameworks_of(self._spec, self._environment())
        elif init:
            self._packages = frameworks_of(self._spec, self._environment(), "/proc/%d/root" % init)

    def _warn(self, sampler: Sampler, tell: int) -> None:
        """Once, a minute after the start, if the GPU that was asked for lies idle."""
        self._warned = True
        if sampler.opened is not False:
            return
        from .diagnosis import Case, diagnose  # noqa: PLC0415 - regular expressions and tables, for the end mostly

        found = diagnose(Case("no", None, self._spec["gpus"], self._evidence()))
        words = "after %g s the run has not opened the GPU that it requested" % self._patience
        say(tell, {"warning": words, "diagnosis": found})

    def _evidence(self) -> Facts:
        from .evidence import gather  # noqa: PLC0415 - as above

        found = gather(self._spec, self._run.log, self._environment(), self._packages)
        found.update(driver=self._looked.get("driver"), cuda=self._looked.get("cuda"))
        found["gpus"] = [{name: gpu.get(name) for name in ("name", "capability")} for gpu in self._visible()]
        return found

    def _judge(self, sampler: Optional[Sampler], ended: Facts) -> Facts:
        from .verdict import judge  # noqa: PLC0415 - as above

        summary = sampler.finish() if sampler is not None else None
        totals = {gpu["uuid"]: gpu.get("memory_total") for gpu in self._looked["gpus"]}
        for gpu in (summary or {}).get("gpus") or ():
            gpu["memory_total"] = totals.get(gpu["uuid"])
        problem = self._looked.get("problem") or (None if self._looked.get("gpus") else "the target has no GPU")
        facts = {"started": True, "held": self._uuids is not None, "problem": problem}
        evidence = dict(self._evidence(), code=ended.get("code"))
        return judge(summary, self._spec.get("gpus"), facts, evidence, bool(ended.get("failed")))


def describe(gpus: List[Facts], looked: Facts) -> Facts:
    """GPUs as an event tells them."""
    told = [{name: gpu.get(name) for name in _TOLD} for gpu in gpus]
    return {"gpus": told, "driver": looked.get("driver"), "cuda": looked.get("cuda")}


def _begins(uuid: str, word: str) -> bool:
    """CUDA takes the beginning of a UUID for all of it."""
    return word.startswith("GPU-") and uuid.startswith(word)


def say(tell: int, message: Facts) -> None:
    data = json.dumps(message).encode("ascii") + b"\n"
    while data:
        data = data[os.write(tell, data) :]
