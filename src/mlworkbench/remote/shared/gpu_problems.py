"""Codes of the reasons why GPUs cannot be queried. The client chooses a remedy by the code."""

from __future__ import annotations

NOT_LOADED = "driver-not-loaded"
MISMATCH = "driver-mismatch"  # the driver was updated, but the former one is still loaded
NO_DRIVER = "no-driver"  # there is a card, but no software for it
NO_LIBRARY = "no-nvml"
NO_PERMISSION = "not-allowed"
NO_RESPONSE = "no-response"  # the driver hangs
LOST = "gpu-lost"  # fallen off the bus
NEEDS_RESET = "gpu-needs-reset"
UNKNOWN = "unknown"
