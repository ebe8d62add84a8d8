"""Why another attempt follows an ending."""

from __future__ import annotations

import pytest

from mlworkbench.remote.shared.retry_causes import DEFAULT_CAUSES, retry_cause

# Ending, exit code, cause → retry cause
CAUSES = [
    ("failed", 1, "ValueError: bad batch (train.py:3)", "failed"),
    ("failed", None, None, "failed"),
    ("failed", 2, "exit code 2; last line: error: unrecognized arguments: --lrr", "usage-error"),
    ("failed", 1, "rank 2 failed: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "oom"),
    ("failed", 1, "RuntimeError: CUDA error: out of memory (train.py:8)", "oom"),
    ("failed", 1, "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)", "oom"),
    ("failed", 1, "tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:", "oom"),
    ("failed", 1, "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying", "oom"),
    ("failed", 1, "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8.00 TiB", "oom"),
    ("failed", 1, "pyarrow.lib.ArrowMemoryError: malloc of size 64 failed", "oom"),
    ("failed", 1, "MemoryError", "oom"),
    ("failed", 1, "app.SharedMemoryError: segment psm_1 does not exist", "failed"),
    ("failed", 2, "exit code 2; last line: torch.cuda.OutOfMemoryError: CUDA out of memory", "oom"),
    ("failed", 1, "grpc.RpcError: RESOURCE_EXHAUSTED: quota of requests", "failed"),
    ("out of memory", None, "the container reached its memory limit, and the kernel killed the script", "oom"),
    ("exit unknown", None, "no exit status was recorded", "lost"),
    ("engine stopped it", None, "the engine was stopped", "lost"),
    ("succeeded", 0, None, None),
    ("timeout", None, "stopped after the time limit of 60 s", None),
    ("cancelled", None, "canceled by ada", None),
    ("could not start", None, "MemoryError", None),
]


@pytest.mark.parametrize(("ending", "code", "cause", "expected"), CAUSES)
def test_cause(ending, code, cause, expected):
    assert retry_cause(ending, code, cause) == expected


def test_lack_of_memory_and_usage_errors_are_not_retried_by_default():
    assert {"oom", "usage-error"}.isdisjoint(DEFAULT_CAUSES)
