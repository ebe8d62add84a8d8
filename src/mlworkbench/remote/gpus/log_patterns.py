"""What a log says about GPUs: words of the frameworks and of CUDA, and what each of them means. Pure."""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import List

# Sign → words of which any is enough. All in small letters.
_SIGNS = (
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
_WITH_TROUBLE = ("cannot open shared object", "could not load", "not found", "cannot dlopen", "unable to load")


def read_signs(log: str) -> List[str]:
    """Names of the signs that are in the text."""
    low = log.lower()
    return [name for name, words in _SIGNS if any(_is_there(low, word, name) for word in words)]


def _is_there(low: str, word: str, name: str) -> bool:
    at = low.find(word)
    if at < 0 or name != "no cuda libraries" or not word.startswith("libcu"):
        return at >= 0
    while at >= 0:  # a library's name is a sign only beside the complaint that it is missing
        line = low[max(0, at - 200) : at + 200]
        if any(trouble in line for trouble in _WITH_TROUBLE):
            return True
        at = low.find(word, at + 1)
    return False
