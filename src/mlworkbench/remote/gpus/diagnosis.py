"""Why a GPU was not used, or badly, from the evidence: one cause, one remedy. Pure."""

from __future__ import annotations

from ..shared.cuda_drivers import oldest_driver, runs

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    Facts = Dict[str, Any]
    Found = Optional[Tuple[str, Optional[str]]]

NO_GPU = "no-gpu-in-container"  # code of a container that did not start, as in complaints.py
_HIDDEN = ("", "-1", "NoDevFiles", "none", "void")
_GIB = 1024**3
POOR = 0.5  # below this share of the time a GPU is not well used
_SATURATED = 0.85  # of all processors, or of one: a loop that feeds a GPU is mostly one thread
_WAITS = 0.3  # share of the time that the run waits for a disk
_THROTTLED = 0.2
_OPENING = 0.02  # share of the time that opening a GPU may look like work
_MUCH = 0.1  # share of a GPU's memory that is worth naming


class Case:
    """All that is known of a run's GPUs when it has ended."""

    def __init__(
        self, used: str, summary: Optional[Facts], asked: Optional[str], evidence: Facts, failed: bool = False
    ) -> None:
        self.used = used
        self.failed = failed
        self.asked = asked
        self.evidence = evidence
        self.gpus: List[Facts] = (summary or {}).get("gpus") or []
        self.summary = summary or {}
        self.signs = evidence.get("signs") or []
        self.frameworks: Dict[str, Facts] = evidence.get("frameworks") or {}

    @property
    def opened(self) -> bool:
        return any(opened(gpu) for gpu in self.gpus)

    def able(self) -> bool:
        """Whether the run seems to have wanted a GPU: it asked, its packages can use one, or its log speaks of one."""
        capable = any(facts.get("gpu") for facts in self.frameworks.values())
        return self.asked is not None or capable or bool(self.signs)

    def busiest(self) -> Optional[float]:
        """Share of the time that the busiest of the GPUs that the run opened was at work."""
        shares = [share for share in (share_of(gpu) for gpu in self.gpus if opened(gpu)) if share is not None]
        return max(shares) if shares else None

    def most(self, name: str) -> Any:
        figures = [gpu[name] for gpu in self.gpus if gpu.get(name) is not None]
        return max(figures) if figures else None


def opened(gpu: Facts) -> bool:
    """Whether a process of the run had it open."""
    return (gpu.get("mine_share") or 0) > 0 or bool(gpu.get("peak_memory") or gpu.get("pids"))


def share_of(gpu: Facts) -> Optional[float]:
    """Share of the time that a GPU was at work: its own figure is of the moments before each look."""
    mean = gpu.get("mean_utilisation")
    return gpu.get("busy_share") if mean is None else float(mean) / 100


def worked(gpu: Facts) -> bool:
    """Whether it ran more than what opening it takes: a kernel or two, seen in a look or two."""
    if not gpu.get("busy_share"):
        return False
    quantiles = gpu.get("quantiles")
    return not (quantiles and quantiles[-1] == 0 and (share_of(gpu) or 0.0) < _OPENING)


def diagnose(case: Case) -> Optional[Facts]:
    """The first cause that the evidence bears out; None if there is none worth telling."""
    for rule, page in _UNUSED if case.used == "no" else _POOR:
        found = rule(case)
        if found:
            return {"cause": found[0], "remedy": found[1], "explain": page}
    return None


# -- it never worked ---------------------------------------------------------------------------------------


def _toolkit(case: Case) -> Found:
    if case.evidence.get("code") != NO_GPU:
        return None
    cause = "the engine could not add a GPU to the container: the NVIDIA Container Toolkit is missing or does not work"
    return cause, "install it on the target, run 'nvidia-ctk runtime configure', and restart the engine"


def _hidden(case: Case) -> Found:
    visible = case.evidence.get("visible")
    if visible is None or visible.strip() not in _HIDDEN:
        return None
    cause = 'CUDA_VISIBLE_DEVICES is "%s", which hides every GPU from the script' % visible.strip()
    return cause, "remove it from EnvironmentVariables, --env, or the script"


def _bare_container(case: Case) -> Found:
    if not case.evidence.get("container") or case.evidence.get("container_gpus") or not case.able():
        return None
    cause = "the container was started without GPUs: nvidiaDocker is not set for this target"
    return cause, "set nvidiaDocker: true in the .compute file, or submit with --gpus 1"


def _cpu_build(case: Case) -> Found:
    capable = [name for name, facts in case.frameworks.items() if facts.get("gpu")]
    plain = [(name, facts) for name, facts in case.frameworks.items() if facts.get("gpu") is False]
    if capable or not plain:
        return (
            ("this PyTorch build has no CUDA support", _obtain(case, _WITH_CUDA["torch"]))
            if "cpu build" in case.signs
            else None
        )
    name, facts = plain[0]
    cause = "%s %s is a CPU-only build" % (name, facts.get("version") or "")
    return cause, _obtain(case, _WITH_CUDA.get(name, "a CUDA build of %s" % name))


_WITH_CUDA = {
    "torch": "a CUDA build of torch (no +cpu, no CPU package index)",
    "tensorflow": "tensorflow[and-cuda]",
    "jax": "jax[cuda12] (or jax[cuda13])",
    "cntk": "cntk-gpu",
    "onnxruntime": "onnxruntime-gpu",
    "paddlepaddle": "paddlepaddle-gpu",
}


def _obtain(case: Case, package: str) -> str:
    """How a package gets to the script: mlw installs it, or the target's own Python or image has it."""
    python = case.evidence.get("python")
    if python is None:
        return "add %s to conda_dependencies.yml" % package
    if case.evidence.get("container"):
        return "use an image (baseDockerImage) with %s" % package
    return "install %s for %s, which ran the script" % (package, python)


def _old_driver(case: Case) -> Found:
    driver = case.evidence.get("driver")
    for name, facts in case.frameworks.items():
        built = numbers(facts.get("cuda") or "")
        if built and driver and not runs(driver, built):
            oldest = oldest_driver(built)
            words = "%s %s is built for CUDA %s, which needs driver %s; the target has %s"
            told = words % (name, facts.get("version") or "", facts["cuda"], oldest, driver)
            return told, "install a newer driver on the target, or a build for an older CUDA"
    if "driver too old" in case.signs:
        told = "the driver%s is too old for the framework's CUDA version" % (" " + driver if driver else "")
        return told, "install a newer driver on the target, or a build for an older CUDA"
    return None


def _no_libcuda(case: Case) -> Found:
    if "no libcuda" not in case.signs:
        return None
    if case.evidence.get("container"):
        cause = "libcuda, the driver's library, was not found inside the container"
        return cause, "set nvidiaDocker: true; if it is set, check the NVIDIA Container Toolkit with 'mlw doctor gpu'"
    return "libcuda, the driver's library, was not found", "install the NVIDIA driver, or correct LD_LIBRARY_PATH"


def _no_libraries(case: Case) -> Found:
    if "no cuda libraries" not in case.signs:
        return None
    cause = "the framework did not find the CUDA libraries and continued without the GPU"
    if case.evidence.get("container"):
        return cause, "use tensorflow[and-cuda], or set baseDockerImage to an image with CUDA"
    return cause, _obtain(case, "tensorflow[and-cuda]")


def _no_kernel(case: Case) -> Found:
    if "no kernel" not in case.signs:
        return None
    models = sorted({"%s (%s)" % (gpu["name"], gpu["capability"]) for gpu in case.evidence.get("gpus") or ()})
    where = " for %s" % ", ".join(models) if models else ""
    return "the framework's build has no GPU code%s" % where, "install a build that supports this compute capability"


def _lost(case: Case) -> Found:
    gone = [gpu for gpu in case.gpus if gpu.get("lost")]
    if not gone and "lost" not in case.signs:
        return None
    who = ", ".join("%s: %s" % (gpu.get("name") or gpu.get("uuid"), gpu["lost"].get("why")) for gpu in gone)
    cause = "the GPU was lost during the run" + (" (%s)" % who if who else "")
    if case.evidence.get("container") and not gone:
        cause += ": the container lost its devices, as happens after a systemd reload"
        return cause, "configure the engine to use cgroupfs or CDI (nvidia-ctk cdi generate), then submit again"
    return cause, "check the target's kernel log for Xid errors; a reset or reboot restores the GPU"


def _crowded(case: Case) -> Found:
    others = [gpu for gpu in case.gpus if _taken(gpu) > _MUCH * (gpu.get("memory_total") or _GIB)]
    if not others or "out of memory" not in case.signs:
        return None
    gpu = max(others, key=_taken)
    cause = "%.1f GiB of the memory of %s were used by other processes"
    told = cause % (_taken(gpu) / _GIB, gpu.get("name") or "the GPU")
    return told, "submit with --gpus 1 to wait for a free GPU; 'mlw gpus' shows who uses it"


def _taken(gpu: Facts) -> float:
    """Bytes of its memory that were somebody else's."""
    known = gpu.get("peak_memory_others")
    if known is not None:
        return float(known)
    return float(max(0, (gpu.get("peak_memory_device") or 0) - (gpu.get("peak_memory") or 0)))


def _out_of_memory(case: Case) -> Found:
    if "out of memory" not in case.signs:
        return None
    peak, total = case.most("peak_memory"), case.most("memory_total")
    figures = " at %.1f GiB" % (peak / _GIB) if peak else ""
    figures += " of %.1f GiB" % (total / _GIB) if peak and total else ""
    return "the script ran out of GPU memory%s" % figures, "use a smaller batch or model, or a GPU with more memory"


def _context_only(case: Case) -> Found:
    if not case.opened or any(worked(gpu) for gpu in case.gpus if opened(gpu)):
        return None
    cause = "the script opened the GPU but ran nothing on it: model and data stayed on the CPU"
    return cause, 'move both to the GPU, for example with model.to("cuda") and batch.to("cuda")'


def _no_framework(case: Case) -> Found:
    if case.asked is None or case.evidence.get("frameworks") is None or case.frameworks:
        return None
    return "no package in the environment supports GPUs", _obtain(case, "a framework with CUDA")


def _failed_first(case: Case) -> Found:
    """A script that ended early says nothing about how it would have used the GPU."""
    if not case.failed or "no device" in case.signs or (case.asked is None and not case.opened):
        return None  # what CUDA did not find may be why it failed
    return "the script failed before it used the GPU", None


def _no_device(case: Case) -> Found:
    if "no device" not in case.signs:
        return None
    return "CUDA found no GPU", "run 'mlw doctor gpu' to check each step from the driver to the framework"


def _never_opened(case: Case) -> Found:
    if case.asked is None or case.opened:
        return None
    return (
        "the script never opened the GPU",
        'use the GPU in the script, for example with torch.device("cuda"), or submit with --gpus none',
    )


# -- it worked, but not well -------------------------------------------------------------------------------


def _throttled(case: Case) -> Found:
    share = case.most("throttled_share")
    if share is None or share < _THROTTLED:
        return None
    reasons = sorted({str(one) for gpu in case.gpus for one in gpu.get("reasons") or ()})
    cause = "the GPU was throttled for %d %% of the time" % round(share * 100)
    return cause + (" (%s)" % ", ".join(reasons) if reasons else ""), "check its cooling and its power limit"


def _input_bound(case: Case) -> Found:
    busy = case.busiest()
    if busy is None or busy >= POOR or not case.opened:
        return None
    why = _why_slow(case.summary)
    if why is None:
        return None
    what, remedy = why
    return "the GPU was busy only %d %% of the time, in short bursts, while %s" % (round(busy * 100), what), remedy


def _why_slow(summary: Facts) -> Found:
    load = "load data with more workers (num_workers), prefetch it, or preprocess it in advance"
    if (summary.get("cpu_share") or 0) >= _SATURATED:
        return "the run kept all CPUs busy: it waits for input", load
    if (summary.get("busiest") or 0) >= _SATURATED:
        # It prepares input, or it starts steps that are over before the next one is started: both look alike from here.
        what = "one process of the run kept its CPU busy: it waits for input, or its steps are too small"
        return what, "try larger batches; %s" % load
    waits = summary.get("disk_share") or 0
    if waits < _WAITS:
        return None
    return "the run waited for the disk %d %% of the time: it waits for input" % round(waits * 100), load


def _some_idle(case: Case) -> Found:
    idle = [gpu for gpu in case.gpus if not opened(gpu)]
    if case.asked is None or not idle or len(idle) == len(case.gpus):
        return None
    cause = "%d of the %d GPUs were never opened" % (len(idle), len(case.gpus))
    return cause, "request fewer with --gpus, or distribute the work (torchrun, DistributedDataParallel)"


def _idle_often(case: Case) -> Found:
    busy = case.busiest()
    if busy is None or busy >= 0.1 or not case.opened:
        return None
    cause = "the GPU was busy only %d %% of the time" % round(busy * 100)
    return cause, "give the GPU more work at a time: larger batches, fewer copies to and from it"


# Each rule with its page of ``mlw explain``.
_UNUSED: Tuple[Tuple[Callable[[Case], Found], str], ...] = (
    (_toolkit, NO_GPU),
    (_hidden, "gpu-hidden"),
    (_bare_container, NO_GPU),
    (_lost, "gpu-lost"),
    (_crowded, "gpu-memory"),
    (_out_of_memory, "gpu-memory"),
    (_cpu_build, "gpu-cpu-build"),
    (_old_driver, "gpu-driver"),
    (_no_kernel, "gpu-libraries"),
    (_no_libcuda, "gpu-libraries"),
    (_no_libraries, "gpu-libraries"),
    (_failed_first, "gpu-not-used"),
    (_context_only, "gpu-not-used"),
    (_no_device, "gpu-not-used"),
    (_no_framework, "gpu-not-used"),
    (_never_opened, "gpu-not-used"),
)
_POOR: Tuple[Tuple[Callable[[Case], Found], str], ...] = (
    (_lost, "gpu-lost"),
    (_crowded, "gpu-memory"),
    (_out_of_memory, "gpu-memory"),
    (_throttled, "gpu-slow"),
    (_some_idle, "gpu-not-used"),
    (_input_bound, "gpu-slow"),
    (_idle_often, "gpu-slow"),
)


def numbers(text: str) -> Tuple[int, ...]:
    return tuple(int(word) for word in text.split(".") if word.isdigit())
