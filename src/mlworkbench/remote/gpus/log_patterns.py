"""Framework and CUDA messages in a log that indicate GPU problems. Pure functions."""

from __future__ import annotations

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import List

# Signs of a problem, each with lowercase phrases. A log has the sign if it contains one of the phrases.
_PATTERNS = (
    (
        "out of memory",
        (
            "cuda out of memory",
            "outofmemoryerror: cuda",
            "cuda_error_out_of_memory",
            "cudaerrormemoryallocation",
            "cublas_status_alloc_failed",
            "oom when allocating tensor",
            "resource_exhausted: out of memory",
            "cuda failure 2: out of memory",
            "cuda runtime error (2)",
            "cudamalloc failed: out of memory",
        ),
    ),
    ("cpu build", ("torch not compiled with cuda enabled", "not compiled with cuda support")),
    (
        "driver too old",
        (
            "nvidia driver on your system is too old",
            "cuda driver version is insufficient for cuda runtime version",
            "cudaerrorinsufficientdriver",
            "cuda_error_unsupported_ptx_version",
            "provided ptx was compiled with an unsupported toolchain",
            "cuda_error_system_driver_mismatch",
        ),
    ),
    (
        "no kernel",
        (
            "no kernel image is available for execution",
            "is not compatible with the current pytorch installation",
            "cudaerrornokernelimagefordevice",
            "cuda_error_no_binary_for_gpu",
        ),
    ),
    (
        "no libcuda",
        (
            "libcuda.so.1: cannot open shared object",
            "could not load dynamic library 'libcuda.so.1'",
            "libcuda.so: cannot open shared object",
            "could not find cuda drivers on your machine",
            "found no nvidia driver on your system",
            "libcuda reported version is: not found",
        ),
    ),
    (
        "no cuda libraries",
        (
            "cannot dlopen some gpu libraries",
            "could not load dynamic library 'libcudart",
            "could not load dynamic library 'libcudnn",
            "libcudart.so",
            "libcublas.so",
            "libcudnn.so",
            "libcudnn_",
        ),
    ),
    (
        "no device",
        (
            "no cuda-capable device is detected",
            "cuda_error_no_device",
            "no cuda gpus are available",
            "cudaerrornodevice",
        ),
    ),
    (
        "lost",
        (
            "gpu is lost",
            "failed to initialize nvml: unknown error",
            "cuda_error_unknown",
            "cuda error: unknown error",
            "cudaerrorunknown",
            "fallen off the bus",
            "cuda_error_device_unavailable",
            "uncorrectable ecc error",
            "cudaerrordevicesunavailable",
        ),
    ),
)
_LOAD_ERRORS = ("cannot open shared object", "could not load", "not found", "cannot dlopen", "unable to load")


def find_log_patterns(log: str) -> List[str]:
    """Return the names of the signs that the log contains."""
    lowered = log.lower()
    return [name for name, phrases in _PATTERNS if any(_has_phrase(lowered, phrase, name) for phrase in phrases)]


def _has_phrase(lowered: str, phrase: str, name: str) -> bool:
    position = lowered.find(phrase)
    if position < 0 or name != "no cuda libraries" or not phrase.startswith("libcu"):
        return position >= 0
    while position >= 0:  # a library name counts only close to an error message
        line = lowered[max(0, position - 200) : position + 200]
        if any(error in line for error in _LOAD_ERRORS):
            return True
        position = lowered.find(phrase, position + 1)
    return False
