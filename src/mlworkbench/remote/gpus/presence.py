"""Whether a machine may have an NVIDIA GPU at all. Asked at every start, and therefore nothing is loaded for it."""

from __future__ import annotations

import os

_SIGNS = ("/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia/version", "/dev/dxg")


def may_have_gpu() -> bool:
    """False is certain, True is worth a closer look."""
    if os.environ.get("MLW_NVML_LIBRARY") or any(os.path.exists(sign) for sign in _SIGNS):
        return True
    # A container host may hide the devices and still have the tool.
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return any(os.access(os.path.join(folder, "nvidia-smi"), os.X_OK) for folder in folders if folder)
