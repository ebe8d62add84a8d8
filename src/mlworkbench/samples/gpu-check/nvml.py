"""Lists the machine's GPUs, whether or not this run can use them. Calls NVML, the library behind nvidia-smi."""

import ctypes

LIBRARY = "libnvidia-ml.so.1"


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def ask(library=LIBRARY):
    """Returns (driver version, [name and memory of each GPU]), or (None, []) if NVML is not available."""
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return None, []
    if nvml.nvmlInit_v2() != 0:
        return None, []
    try:
        count = ctypes.c_uint()
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            count.value = 0
        found = [_card(nvml, number) for number in range(count.value)]
        return _text(nvml.nvmlSystemGetDriverVersion), [one for one in found if one]
    finally:
        nvml.nvmlShutdown()


def _card(nvml, number):
    """Returns name and memory of a GPU, or None if it does not respond."""
    handle, memory = ctypes.c_void_p(), _Memory()
    if nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)) != 0:
        return None
    name = _text(nvml.nvmlDeviceGetName, handle) or "unknown"
    told = nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
    return f"{name}, {memory.total / 2**30:.1f} GiB" if told else name


def _text(function, *values):
    room = ctypes.create_string_buffer(96)
    return room.value.decode(errors="replace") if function(*values, room, len(room)) == 0 else None
