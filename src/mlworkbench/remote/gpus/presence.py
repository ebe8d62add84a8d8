"""Quickly check whether a machine may have an NVIDIA GPU.

This check runs at the start of every run, so it imports almost nothing.
"""

from __future__ import annotations

import os

_DEVICE_PATHS = ("/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia/version", "/dev/dxg")


def may_have_gpu() -> bool:
    """Return False if there is certainly no GPU, or True if a query is worthwhile."""
    if os.environ.get("MLW_NVML_LIBRARY") or any(os.path.exists(path) for path in _DEVICE_PATHS):
        return True
    # Some container hosts hide the device files but provide nvidia-smi.
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return any(os.access(os.path.join(folder, "nvidia-smi"), os.X_OK) for folder in folders if folder)
