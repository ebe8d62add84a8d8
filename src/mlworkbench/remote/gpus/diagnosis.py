"""Explain why a GPU was not used, or was used poorly: one cause and one remedy. Pure functions."""

from __future__ import annotations

from ..shared.cuda_drivers import driver_supports, oldest_driver

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    Facts = Dict[str, Any]
    Finding = Optional[Tuple[str, Optional[str]]]

NO_GPU = "no-gpu-in-container"  # failure code of a container that got no GPU; same as in engine_errors.py
_HIDING_VALUES = ("", "-1", "NoDevFiles", "none", "void")
_GIB = 1024**3
POOR_SHARE = 0.5  # a GPU that is busy for a smaller share of the time is used poorly
_SATURATED_SHARE = 0.85  # load of all CPUs, or of one, because a loop that feeds a GPU is usually one thread
_DISK_WAIT_SHARE = 0.3  # share of the time spent waiting for the disk
_THROTTLED_SHARE = 0.2
_OPENING_SHARE = 0.02  # maximum busy share caused by merely opening a GPU
_NOTABLE_MEMORY = 0.1  # share of a GPU's memory that is worth mentioning


class Case:
    """Everything known about a run's GPUs after the run has ended."""

    def __init__(
        self, used: str, summary: Optional[Facts], requested: Optional[str], evidence: Facts, failed: bool = False
    ) -> None:
        self.used = used
        self.failed = failed
        self.requested = requested
        self.evidence = evidence
        self.gpus: List[Facts] = (summary or {}).get("gpus") or []
        self.summary = summary or {}
        self.signs = evidence.get("signs") or []
        self.frameworks: Dict[str, Facts] = evidence.get("frameworks") or {}

    @property
    def has_opened_gpu(self) -> bool:
        return any(was_opened(gpu) for gpu in self.gpus)

    def expects_gpu(self) -> bool:
        """Return whether the run was intended to use a GPU.

        That is the case if it requested one, its packages support GPUs, or its log mentions them.
        """
        capable = any(facts.get("gpu") for facts in self.frameworks.values())
        return self.requested is not None or capable or bool(self.signs)

    def max_busy_share(self) -> Optional[float]:
        """Return the busy share of the busiest GPU that the run opened."""
        shares = [share for share in (busy_share(gpu) for gpu in self.gpus if was_opened(gpu)) if share is not None]
        return max(shares) if shares else None

    def max_figure(self, name: str) -> Any:
        figures = [gpu[name] for gpu in self.gpus if gpu.get(name) is not None]
        return max(figures) if figures else None


def was_opened(gpu: Facts) -> bool:
    """Return whether a process of the run opened the GPU."""
    return (gpu.get("mine_share") or 0) > 0 or bool(gpu.get("peak_memory") or gpu.get("pids"))


def busy_share(gpu: Facts) -> Optional[float]:
    """Return how busy a GPU was, as a share of the time, or None if unknown.

    This is the mean utilization or, if that is missing, the less exact share of samples with any activity.
    """
    mean = gpu.get("mean_utilisation")
    return gpu.get("busy_share") if mean is None else float(mean) / 100


def did_work(gpu: Facts) -> bool:
    """Return whether the GPU did more work than the few kernels that opening it causes."""
    if not gpu.get("busy_share"):
        return False
    quantiles = gpu.get("quantiles")
    return not (quantiles and quantiles[-1] == 0 and (busy_share(gpu) or 0.0) < _OPENING_SHARE)


def diagnose(case: Case) -> Optional[Facts]:
    """Return the first cause that the evidence supports, or None if there is none."""
    for rule, page in _UNUSED_RULES if case.used == "no" else _POOR_RULES:
        finding = rule(case)
        if finding:
            return {"cause": finding[0], "remedy": finding[1], "explain": page}
    return None


# -- rules for GPUs that were not used ---------------------------------------------------------------------


def _missing_toolkit(case: Case) -> Finding:
    if case.evidence.get("code") != NO_GPU:
        return None
    cause = "the engine could not add a GPU to the container: the NVIDIA Container Toolkit is missing or does not work"
    return cause, "install it on the target, run 'nvidia-ctk runtime configure', and restart the engine"


def _hidden_gpus(case: Case) -> Finding:
    visible = case.evidence.get("visible")
    if visible is None or visible.strip() not in _HIDING_VALUES:
        return None
    cause = 'CUDA_VISIBLE_DEVICES is "%s", which hides every GPU from the script' % visible.strip()
    return cause, "remove it from EnvironmentVariables, --env, or the script"


def _container_without_gpus(case: Case) -> Finding:
    if not case.evidence.get("container") or case.evidence.get("container_gpus") or not case.expects_gpu():
        return None
    cause = "the container was started without GPUs: nvidiaDocker is not set for this target"
    return cause, "set nvidiaDocker: true in the .compute file, or submit with --gpus 1"


def _cpu_build(case: Case) -> Finding:
    capable = [name for name, facts in case.frameworks.items() if facts.get("gpu")]
    cpu_only = [(name, facts) for name, facts in case.frameworks.items() if facts.get("gpu") is False]
    if capable or not cpu_only:
        return (
            ("this PyTorch build has no CUDA support", _install_remedy(case, _CUDA_PACKAGES["torch"]))
            if "cpu build" in case.signs
            else None
        )
    name, facts = cpu_only[0]
    cause = "%s %s is a CPU-only build" % (name, facts.get("version") or "")
    return cause, _install_remedy(case, _CUDA_PACKAGES.get(name, "a CUDA build of %s" % name))


_CUDA_PACKAGES = {
    "torch": "a CUDA build of torch (no +cpu, no CPU package index)",
    "tensorflow": "tensorflow[and-cuda]",
    "jax": "jax[cuda12] (or jax[cuda13])",
    "cntk": "cntk-gpu",
    "onnxruntime": "onnxruntime-gpu",
    "paddlepaddle": "paddlepaddle-gpu",
}


def _install_remedy(case: Case, package: str) -> str:
    """Return how to install a package: with mlw, in the target's Python, or in the image."""
    python = case.evidence.get("python")
    if python is None:
        return "add %s to conda_dependencies.yml" % package
    if case.evidence.get("container"):
        return "use an image (baseDockerImage) with %s" % package
    return "install %s for %s, which ran the script" % (package, python)


def _old_driver(case: Case) -> Finding:
    driver = case.evidence.get("driver")
    for name, facts in case.frameworks.items():
        built = parse_version(facts.get("cuda") or "")
        if built and driver and not driver_supports(driver, built):
            oldest = oldest_driver(built)
            template = "%s %s is built for CUDA %s, which needs driver %s; the target has %s"
            cause = template % (name, facts.get("version") or "", facts["cuda"], oldest, driver)
            return cause, "install a newer driver on the target, or a build for an older CUDA"
    if "driver too old" in case.signs:
        cause = "the driver%s is too old for the framework's CUDA version" % (" " + driver if driver else "")
        return cause, "install a newer driver on the target, or a build for an older CUDA"
    return None


def _no_libcuda(case: Case) -> Finding:
    if "no libcuda" not in case.signs:
        return None
    if case.evidence.get("container"):
        cause = "libcuda, the driver's library, was not found inside the container"
        return cause, "set nvidiaDocker: true; if it is set, check the NVIDIA Container Toolkit with 'mlw doctor gpu'"
    return "libcuda, the driver's library, was not found", "install the NVIDIA driver, or correct LD_LIBRARY_PATH"


def _no_libraries(case: Case) -> Finding:
    if "no cuda libraries" not in case.signs:
        return None
    cause = "the framework did not find the CUDA libraries and continued without the GPU"
    if case.evidence.get("container"):
        return cause, "use tensorflow[and-cuda], or set baseDockerImage to an image with CUDA"
    return cause, _install_remedy(case, "tensorflow[and-cuda]")


def _no_kernel(case: Case) -> Finding:
    if "no kernel" not in case.signs:
        return None
    models = sorted({"%s (%s)" % (gpu["name"], gpu["capability"]) for gpu in case.evidence.get("gpus") or ()})
    where = " for %s" % ", ".join(models) if models else ""
    return "the framework's build has no GPU code%s" % where, "install a build that supports this compute capability"


def _lost_gpu(case: Case) -> Finding:
    lost = [gpu for gpu in case.gpus if gpu.get("lost")]
    if not lost and "lost" not in case.signs:
        return None
    details = ", ".join("%s: %s" % (gpu.get("name") or gpu.get("uuid"), gpu["lost"].get("why")) for gpu in lost)
    cause = "the GPU was lost during the run" + (" (%s)" % details if details else "")
    if case.evidence.get("container") and not lost:
        cause += ": the container lost its devices, as happens after a systemd reload"
        return cause, "configure the engine to use cgroupfs or CDI (nvidia-ctk cdi generate), then submit again"
    return cause, "check the target's kernel log for Xid errors; a reset or reboot restores the GPU"


def _memory_in_use(case: Case) -> Finding:
    others = [gpu for gpu in case.gpus if _memory_of_others(gpu) > _NOTABLE_MEMORY * (gpu.get("memory_total") or _GIB)]
    if not others or "out of memory" not in case.signs:
        return None
    gpu = max(others, key=_memory_of_others)
    template = "%.1f GiB of the memory of %s were used by other processes"
    cause = template % (_memory_of_others(gpu) / _GIB, gpu.get("name") or "the GPU")
    return cause, "submit with --gpus 1 to wait for a free GPU; 'mlw gpus' shows who uses it"


def _memory_of_others(gpu: Facts) -> float:
    """Return how many bytes of the GPU's memory other processes used."""
    measured = gpu.get("peak_memory_others")
    if measured is not None:
        return float(measured)
    return float(max(0, (gpu.get("peak_memory_device") or 0) - (gpu.get("peak_memory") or 0)))


def _out_of_memory(case: Case) -> Finding:
    if "out of memory" not in case.signs:
        return None
    peak, total = case.max_figure("peak_memory"), case.max_figure("memory_total")
    figures = " at %.1f GiB" % (peak / _GIB) if peak else ""
    figures += " of %.1f GiB" % (total / _GIB) if peak and total else ""
    return "the script ran out of GPU memory%s" % figures, "use a smaller batch or model, or a GPU with more memory"


def _context_only(case: Case) -> Finding:
    if not case.has_opened_gpu or any(did_work(gpu) for gpu in case.gpus if was_opened(gpu)):
        return None
    cause = "the script opened the GPU but ran nothing on it: model and data stayed on the CPU"
    return cause, 'move both to the GPU, for example with model.to("cuda") and batch.to("cuda")'


def _no_framework(case: Case) -> Finding:
    if case.requested is None or case.evidence.get("frameworks") is None or case.frameworks:
        return None
    return "no package in the environment supports GPUs", _install_remedy(case, "a framework with CUDA")


def _failed_early(case: Case) -> Finding:
    """Match a script that failed before it used the GPU."""
    if not case.failed or "no device" in case.signs or (case.requested is None and not case.has_opened_gpu):
        return None  # a missing device may have caused the failure
    return "the script failed before it used the GPU", None


def _no_device(case: Case) -> Finding:
    if "no device" not in case.signs:
        return None
    return "CUDA found no GPU", "run 'mlw doctor gpu' to check each step from the driver to the framework"


def _never_opened(case: Case) -> Finding:
    if case.requested is None or case.has_opened_gpu:
        return None
    return (
        "the script never opened the GPU",
        'use the GPU in the script, for example with torch.device("cuda"), or submit with --gpus none',
    )


# -- rules for GPUs that were poorly used ------------------------------------------------------------------


def _throttled(case: Case) -> Finding:
    share = case.max_figure("throttled_share")
    if share is None or share < _THROTTLED_SHARE:
        return None
    reasons = sorted({str(reason) for gpu in case.gpus for reason in gpu.get("reasons") or ()})
    cause = "the GPU was throttled for %d %% of the time" % round(share * 100)
    return cause + (" (%s)" % ", ".join(reasons) if reasons else ""), "check its cooling and its power limit"


def _input_bound(case: Case) -> Finding:
    busy = case.max_busy_share()
    if busy is None or busy >= POOR_SHARE or not case.has_opened_gpu:
        return None
    why = _input_cause(case.summary)
    if why is None:
        return None
    what, remedy = why
    return "the GPU was busy only %d %% of the time, in short bursts, while %s" % (round(busy * 100), what), remedy


def _input_cause(summary: Facts) -> Finding:
    load = "load data with more workers (num_workers), prefetch it, or preprocess it in advance"
    if (summary.get("cpu_share") or 0) >= _SATURATED_SHARE:
        return "the run kept all CPUs busy: it waits for input", load
    if (summary.get("busiest") or 0) >= _SATURATED_SHARE:
        # Either the run prepares input, or its GPU steps are too short. Both look the same from outside.
        what = "one process of the run kept its CPU busy: it waits for input, or its steps are too small"
        return what, "try larger batches; %s" % load
    waits = summary.get("disk_share") or 0
    if waits < _DISK_WAIT_SHARE:
        return None
    return "the run waited for the disk %d %% of the time: it waits for input" % round(waits * 100), load


def _idle_gpus(case: Case) -> Finding:
    idle = [gpu for gpu in case.gpus if not was_opened(gpu)]
    if case.requested is None or not idle or len(idle) == len(case.gpus):
        return None
    cause = "%d of the %d GPUs were never opened" % (len(idle), len(case.gpus))
    return cause, "request fewer with --gpus, or distribute the work (torchrun, DistributedDataParallel)"


def _mostly_idle(case: Case) -> Finding:
    busy = case.max_busy_share()
    if busy is None or busy >= 0.1 or not case.has_opened_gpu:
        return None
    cause = "the GPU was busy only %d %% of the time" % round(busy * 100)
    return cause, "give the GPU more work at a time: larger batches, fewer copies to and from it"


# Rules in order of precedence, with their ``mlw explain`` pages.
_UNUSED_RULES: Tuple[Tuple[Callable[[Case], Finding], str], ...] = (
    (_missing_toolkit, NO_GPU),
    (_hidden_gpus, "gpu-hidden"),
    (_container_without_gpus, NO_GPU),
    (_lost_gpu, "gpu-lost"),
    (_memory_in_use, "gpu-memory"),
    (_out_of_memory, "gpu-memory"),
    (_cpu_build, "gpu-cpu-build"),
    (_old_driver, "gpu-driver"),
    (_no_kernel, "gpu-libraries"),
    (_no_libcuda, "gpu-libraries"),
    (_no_libraries, "gpu-libraries"),
    (_failed_early, "gpu-not-used"),
    (_context_only, "gpu-not-used"),
    (_no_device, "gpu-not-used"),
    (_no_framework, "gpu-not-used"),
    (_never_opened, "gpu-not-used"),
)
_POOR_RULES: Tuple[Tuple[Callable[[Case], Finding], str], ...] = (
    (_lost_gpu, "gpu-lost"),
    (_memory_in_use, "gpu-memory"),
    (_out_of_memory, "gpu-memory"),
    (_throttled, "gpu-slow"),
    (_idle_gpus, "gpu-not-used"),
    (_input_bound, "gpu-slow"),
    (_mostly_idle, "gpu-slow"),
)


def parse_version(text: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
