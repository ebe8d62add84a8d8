"""Why an attempt ended, as far as it decides whether another one follows."""

from __future__ import annotations

import re

from . import run_endings

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Optional

FAILED, OUT_OF_MEMORY, LOST, USAGE_ERROR = "failed", "oom", "lost", "usage-error"
PREEMPTED, NODE_FAILURE = "preempted", "node-failure"  # only schedulers report these
CAUSES = (FAILED, OUT_OF_MEMORY, LOST, PREEMPTED, NODE_FAILURE, USAGE_ERROR)
DEFAULT_CAUSES = (FAILED, LOST, PREEMPTED, NODE_FAILURE)
MAX_RETRIES = 1000
MAX_DELAY = 600.0  # seconds

_USAGE_CODE = 2  # exit code of argparse and of shells for wrong arguments, which another attempt cannot correct
_BY_ENDING = {
    run_endings.OUT_OF_MEMORY: OUT_OF_MEMORY,
    run_endings.EXIT_UNKNOWN: LOST,
    run_endings.ENGINE_STOPPED: LOST,
    run_endings.PREEMPTED: PREEMPTED,
    run_endings.NODE_FAILURE: NODE_FAILURE,
}


# Lowercase phrases in the causes of scripts that failed because the memory of a GPU or of the machine ran out.
_OUT_OF_MEMORY_PHRASES = (
    "cuda out of memory",
    "hip out of memory",
    "cuda_error_out_of_memory",
    "cudaerrormemoryallocation",
    "cublas_status_alloc_failed",
    "cuda failure 2: out of memory",
    "cuda runtime error (2)",
    "cudamalloc failed: out of memory",
    "cuda error: out of memory",
    "resourceexhaustederror",  # TensorFlow
    "oom when allocating tensor",
    "resource_exhausted: out of memory",  # JAX; other libraries use RESOURCE_EXHAUSTED for quotas
    "resource_exhausted: failed to allocate",
)
# Also OutOfMemoryError of PyTorch and CuPy, and the classes of NumPy and Arrow. Others are different errors, such as
# SharedMemoryError.
_MEMORY_ERROR = re.compile(r"(?:\b|_|outof|array|arrow)memoryerror\b")


def retry_cause(ending: str, code: Optional[int], cause: Optional[str] = None) -> Optional[str]:
    """Return the cause for an ending, or None if no attempt ever follows it. ``cause``: the message of its failure."""
    if ending == run_endings.FAILED:
        if _is_out_of_memory(cause or ""):
            return OUT_OF_MEMORY
        return USAGE_ERROR if code == _USAGE_CODE else FAILED
    return _BY_ENDING.get(ending)


def _is_out_of_memory(cause: str) -> bool:
    cause = cause.lower()
    return _MEMORY_ERROR.search(cause) is not None or any(phrase in cause for phrase in _OUT_OF_MEMORY_PHRASES)
