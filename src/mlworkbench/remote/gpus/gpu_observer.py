"""The process that measures the GPUs of a run for its supervisor and assesses their use at the end.

It is a separate process so that a hanging driver cannot prevent stopping a run, and so that NVML's
memory is freed when it exits. It exits with its supervisor, and the two exchange lines of JSON
through pipes.
"""

from __future__ import annotations

import json
import os
import select
import time

from ..allocation import current
from ..launcher import child_environment
from ..run_spec import companion_settings, requested_gpus
from ..shared.layout import RunFolder
from ..shared.untrusted_json import parse_json
from .process_owner import Owner

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from ..run_spec import Spec
    from .gpu_sampler import Sampler
    from .process_ranks import ProcessRanks
    from .stall_detector import StallDetector

    Facts = Dict[str, Any]

MAX_WAIT = 5.0  # maximum seconds between two checks for a due warning
WARN_AFTER = 60.0
_EVENT_FIELDS = ("index", "uuid", "name", "capability", "memory_clock", "bus_id", "memory_total", "memory_free")


class Observer:
    """Observer of one run.

    ``uuids`` lists the GPUs that the run holds. None means that it has no lease and may see all GPUs.
    """

    def __init__(self, run: RunFolder, spec: Spec, facts: Facts, uuids: Optional[List[str]]) -> None:
        self._run = run
        self._spec = spec
        self._facts = facts
        self._uuids = uuids
        self._inventory: Facts = {}
        self._packages: Optional[Facts] = None
        self._warn_after = float(os.environ.get("MLW_GPU_PATIENCE") or WARN_AFTER)
        self._request = requested_gpus(spec)
        self._held = uuids is not None or (current().gpus > 0 and self._request is not None)
        self._warned = self._request is None  # a run that did not request a GPU needs no warning

    def observe(self, read_fd: int, write_fd: int) -> None:
        """Measure until the supervisor reports the end of the run or exits."""
        sampler = self._create_sampler(write_fd)
        stalls = self._create_stall_detector()
        started = time.monotonic()
        while True:
            if sampler is not None:
                if sampler.sample(time.monotonic()) and stalls is not None:
                    self._check_progress(stalls, sampler, write_fd)
                if not self._warned and time.monotonic() - started >= self._warn_after:
                    self._warn(sampler, write_fd)
            pause = sampler.seconds_until_due(time.monotonic()) if sampler is not None else MAX_WAIT
            ready, _, _ = select.select([read_fd], [], [], min(pause, MAX_WAIT))
            if ready:
                message = os.read(read_fd, 65536)
                if message:
                    send(write_fd, {"verdict": self._judge(sampler, parse_json(message))})
                return

    def _create_sampler(self, write_fd: int) -> Optional[Sampler]:
        from .gpu_inventory import query_gpus  # noqa: PLC0415 - only GPU machines need it
        from .gpu_sampler import Sampler  # noqa: PLC0415
        from .nvml import NvmlUnavailable  # noqa: PLC0415

        self._inventory = query_gpus()
        gpus = self._visible_gpus()
        if self._uuids is None:
            send(write_fd, {"gpus": dict(event_data(gpus, self._inventory), held=self._held)})
        if not gpus:
            return None
        try:
            uuids = [gpu["uuid"] for gpu in gpus]
            return Sampler(uuids, self._create_owner(), self._run.gpu, self._create_ranks())
        except NvmlUnavailable as error:
            self._inventory["problem"] = str(error)
            return None

    def _visible_gpus(self) -> List[Facts]:
        """Return the GPUs that the script can see according to its environment variables."""
        gpus = [gpu for gpu in self._inventory["gpus"] if gpu.get("uuid")]
        if self._uuids is not None:
            return [gpu for gpu in gpus if gpu["uuid"] in self._uuids]
        setting = self._environment().get("CUDA_VISIBLE_DEVICES")
        if setting is None:
            return gpus
        identifiers = [identifier.strip() for identifier in setting.split(",")]
        visible = [
            gpu
            for gpu in gpus
            if str(gpu["index"]) in identifiers
            or any(_matches_uuid(gpu["uuid"], identifier) for identifier in identifiers)
        ]
        return visible or gpus  # also measure hidden GPUs: the verdict explains why they were not used

    def _environment(self) -> Dict[str, str]:
        if self._spec.get("container"):
            return dict(self._spec["environment"], **(self._spec["container"].get("environment") or {}))
        return child_environment(self._spec, {})

    def _create_owner(self) -> Owner:
        """Return an ``Owner``, which recognizes the processes of the run."""
        init = None
        if self._spec.get("container"):
            from ..engine import Engine  # noqa: PLC0415 - only runs in containers need it

            init = Engine(self._spec["container"]).inspect().get("pid") or None
        self._read_packages(init)
        return Owner(self._spec["id"], self._run.path, [self._facts.get("pid")], init, self._application_reader())

    def _create_ranks(self) -> Optional[ProcessRanks]:
        if not self._spec.get("processes"):
            return None
        from .process_ranks import ProcessRanks  # noqa: PLC0415 - only for several processes

        return ProcessRanks(self._run, bool(self._spec.get("container")))

    def _application_reader(self) -> Callable[[], Optional[str]]:
        """Return a function that reads the ID of the run's Spark application, if it has one."""
        if companion_settings(self._spec, "spark") is None:
            return lambda: None
        from ..spark.application_marker import read_application_id  # noqa: PLC0415 - only Spark runs need it

        return lambda: read_application_id(self._run)

    def _read_packages(self, init: Optional[int]) -> None:
        """Read the packages at the start, because the container's files no longer exist when the run ends."""
        from .gpu_evidence import find_frameworks  # noqa: PLC0415 - only GPU machines need it

        root = os.path.dirname(os.path.dirname(self._run.path))
        if not self._spec.get("container") or self._spec["commands"][-1]["argv"][0].startswith(root + os.sep):
            self._packages = find_frameworks(self._spec, self._environment())
        elif init:
            self._packages = find_frameworks(self._spec, self._environment(), "/proc/%d/root" % init)

    def _create_stall_detector(self) -> Optional[StallDetector]:
        if not self._spec.get("processes"):
            return None
        from .stall_detector import TIMEOUT, StallDetector  # noqa: PLC0415 - only for several processes

        return StallDetector(self._run, float(os.environ.get("MLW_STALL_TIMEOUT") or TIMEOUT))

    def _check_progress(self, stalls: StallDetector, sampler: Sampler, write_fd: int) -> None:
        message = stalls.update(time.monotonic(), sampler.utilizations)
        if message is not None:
            send(write_fd, message)

    def _warn(self, sampler: Sampler, write_fd: int) -> None:
        """Send one warning if the run has not opened the GPUs that it requested."""
        self._warned = True
        if sampler.has_opened_gpu is not False:
            return
        from .diagnosis import Case, diagnose  # noqa: PLC0415 - rarely needed before the end

        diagnosis = diagnose(Case("no", None, self._request, self._gather_evidence()))
        message = "after %g s the run has not opened the GPU that it requested" % self._warn_after
        send(write_fd, {"warning": message, "diagnosis": diagnosis})

    def _gather_evidence(self) -> Facts:
        from .gpu_evidence import gather_evidence  # noqa: PLC0415 - as above

        evidence = gather_evidence(self._spec, self._run.log, self._environment(), self._packages)
        evidence.update(driver=self._inventory.get("driver"), cuda=self._inventory.get("cuda"))
        evidence["gpus"] = [{name: gpu.get(name) for name in ("name", "capability")} for gpu in self._visible_gpus()]
        return evidence

    def _started_ranks(self) -> List[int]:
        """Return the ranks that were started, or an empty list if the run has only one process."""
        if not self._spec.get("processes"):
            return []
        from ..ranks import read_ranks  # noqa: PLC0415 - only for several processes

        return sorted({record["rank"] for record in read_ranks(self._run)})

    def _judge(self, sampler: Optional[Sampler], ending: Facts) -> Facts:
        from .verdict import decide_verdict  # noqa: PLC0415 - as above

        summary = sampler.finish() if sampler is not None else None
        totals = {gpu["uuid"]: gpu.get("memory_total") for gpu in self._inventory["gpus"]}
        for gpu in (summary or {}).get("gpus") or ():
            gpu["memory_total"] = totals.get(gpu["uuid"])
        problem = self._inventory.get("problem") or (None if self._inventory.get("gpus") else "the target has no GPU")
        facts = {"started": True, "held": self._held, "problem": problem}
        evidence = dict(self._gather_evidence(), code=ending.get("code"), ranks=self._started_ranks())
        return decide_verdict(summary, self._request, facts, evidence, bool(ending.get("failed")))


def event_data(gpus: List[Facts], inventory: Facts) -> Facts:
    """Return the data of a ``gpus`` event."""
    rows = [{name: gpu.get(name) for name in _EVENT_FIELDS} for gpu in gpus]
    return {"gpus": rows, "driver": inventory.get("driver"), "cuda": inventory.get("cuda")}


def _matches_uuid(uuid: str, identifier: str) -> bool:
    """Return whether the identifier is the UUID or a prefix of it, which CUDA accepts as well."""
    return identifier.startswith("GPU-") and uuid.startswith(identifier)


def send(write_fd: int, message: Facts) -> None:
    data = json.dumps(message).encode("ascii") + b"\n"
    while data:
        data = data[os.write(write_fd, data) :]
