"""Access to NVML, the driver's library, through NVIDIA's Python binding.

Values that a card does not provide are None.
"""

from __future__ import annotations

import os
import sys

from ..shared import gpu_problems

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set

# The loader's search path, followed by other locations: container hosts, WSL, and driver containers.
_LIBRARY_PATHS = (
    "libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/usr/lib64-nvidia/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
)
NO_DRIVER, NO_PERMISSION, NO_LIBRARY, NO_FUNCTION, LOST, NEEDS_RESET, MISMATCH = 9, 4, 12, 13, 15, 16, 18
_LOST_CODES = (LOST, NEEDS_RESET)
_PROBLEMS = {
    NO_DRIVER: gpu_problems.NOT_LOADED,
    MISMATCH: gpu_problems.MISMATCH,
    NO_LIBRARY: gpu_problems.NO_LIBRARY,
    NO_PERMISSION: gpu_problems.NO_PERMISSION,
    LOST: gpu_problems.LOST,
    NEEDS_RESET: gpu_problems.NEEDS_RESET,
}
_MAX_MIG_DEVICES = 8  # per card
_BUFFER_SIZE = 32  # maximum number of processes per card that one call can return
_UNKNOWN_SIZE = 2**64 - 1  # NVML's value for an unknown size


class NvmlUnavailable(Exception):
    """An error that prevents the use of NVML on this machine. ``code`` is NVML's error code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.problem = _PROBLEMS.get(code, gpu_problems.UNKNOWN)


class GpuLost(Exception):
    """An error for a card that no longer responds: it has fallen off the bus, or must be reset."""

    def __init__(self, text: Optional[str], problem: Optional[str]) -> None:
        super().__init__(text)
        self.problem = problem


class Nvml:
    """An NVML session. Keep it open for frequent queries, because initialization is far slower than a query."""

    def __init__(self) -> None:
        self.binding = self._binding = _load_binding()
        try:
            self._binding.nvmlInit()
        except self._binding.NVMLError as error:
            raise NvmlUnavailable(error.value, _explain_init_error(error.value, str(error))) from None

    def close(self) -> None:
        try:
            self._binding.nvmlShutdown()
        except self._binding.NVMLError:
            pass  # the driver has been unloaded

    def driver_version(self) -> Optional[str]:
        return _decode(self._query(self._binding.nvmlSystemGetDriverVersion))

    def cuda_version(self) -> Optional[str]:
        """Return the newest CUDA version that this driver supports."""
        number = self._query(self._binding.nvmlSystemGetCudaDriverVersion_v2)
        return "%d.%d" % (number // 1000, number % 1000 // 10) if number else None

    def cards(self) -> List[Card]:
        """Return all cards that the driver lists, including those that do not respond."""
        try:
            count = self._binding.nvmlDeviceGetCount()
        except self._binding.NVMLError as error:
            raise NvmlUnavailable(error.value, _explain_init_error(error.value, str(error))) from None
        return [self._card(index) for index in range(count)]

    def _card(self, index: int) -> Card:
        try:
            return Card(self._binding, index, self._binding.nvmlDeviceGetHandleByIndex(index), None)
        except self._binding.NVMLError as error:
            problem = _PROBLEMS.get(error.value, gpu_problems.UNKNOWN)
            return Card(self._binding, index, None, _explain_error(error.value, str(error)), problem)

    def _query(self, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except self._binding.NVMLError:
            return None


class Card:
    """A GPU or a MIG device. ``error`` explains why it cannot be queried; ``problem`` is the code of the reason."""

    def __init__(
        self, binding: Any, index: int, handle: Any, error: Optional[str], problem: Optional[str] = None
    ) -> None:
        self._binding = binding
        self._handle = handle
        self._unsupported: Set[str] = set()  # queries that this card does not support
        self._buffer: Any = None
        self.index = index
        self.error = error
        self.problem = problem

    def query(self, name: str, *arguments: Any, default: Any = None) -> Any:
        """Call ``nvmlDeviceGet<name>``. Return the default if the card does not provide the value.

        Raise GpuLost if the card is lost.
        """
        if self._handle is None:
            raise GpuLost(self.error, self.problem)
        if name in self._unsupported:
            return default
        try:
            return getattr(self._binding, "nvmlDeviceGet" + name)(self._handle, *arguments)
        except self._binding.NVMLError as error:
            if error.value in _LOST_CODES:
                raise GpuLost(_explain_error(error.value, str(error)), _PROBLEMS[error.value]) from None
            if error.value in (self._binding.NVML_ERROR_NOT_SUPPORTED, NO_FUNCTION, NO_PERMISSION):
                self._unsupported.add(name)
            return default

    def text(self, name: str) -> Optional[str]:
        return _decode(self.query(name))

    def memory(self) -> Any:
        """Return an object with total, used, and free, or None. The v2 query excludes memory reserved by the driver."""
        memory = self.query("MemoryInfo", self._binding.nvmlMemory_v2)
        return self._memory_v1() if "MemoryInfo" in self._unsupported else memory

    def _memory_v1(self) -> Any:
        try:
            return self._binding.nvmlDeviceGetMemoryInfo(self._handle)
        except self._binding.NVMLError:
            return None

    def processes(self, kind: str) -> Optional[List[Dict[str, Any]]]:
        """Return the processes with a context of ``kind`` Compute or Graphics; None if they are not reported."""
        processes = self._running_processes(kind)
        if processes is None:  # too many processes for the buffer, a driver before 510, or no support
            name = kind + "RunningProcesses_v3"
            processes = self.query(name)
            if processes is None and name in self._unsupported:
                processes = self.query(kind + "RunningProcesses_v2")
        if processes is None:
            return None
        unknown = (None, _UNKNOWN_SIZE)
        return [
            {
                "pid": process.pid,
                "memory": None if process.usedGpuMemory in unknown else process.usedGpuMemory,
                "kind": kind.lower(),
            }
            for process in processes
        ]

    def _running_processes(self, kind: str) -> Any:
        """Query the processes with one call, where the binding needs two.

        This is the most expensive call of a sample.
        """
        binding, name = self._binding, kind + "RunningProcesses_v3"
        if self._handle is None or name in self._unsupported:
            return None
        try:
            function = binding._nvmlGetFunctionPointer("nvmlDeviceGet" + name)
        except binding.NVMLError:
            return None
        if self._buffer is None:
            self._buffer = (binding.c_nvmlProcessInfo_v3_t * _BUFFER_SIZE)()
        count = binding.c_uint(_BUFFER_SIZE)
        return self._buffer[: count.value] if function(self._handle, binding.byref(count), self._buffer) == 0 else None

    def mig_devices(self) -> List[Card]:
        """Return the MIG devices of the card."""
        mode = self.query("MigMode")
        if not mode or not mode[0]:
            return []
        devices = []
        for index in range(min(self.query("MaxMigDeviceCount", default=0), _MAX_MIG_DEVICES)):
            handle = self._mig_handle(index)
            if handle is not None:
                devices.append(Card(self._binding, index, handle, None))
        return devices

    def _mig_handle(self, index: int) -> Any:
        try:  # not query(): a missing device must not mark the query as unsupported
            return self._binding.nvmlDeviceGetMigDeviceHandleByIndex(self._handle, index)
        except self._binding.NVMLError:
            return None


def _load_binding() -> Any:
    """Return NVIDIA's Python binding with the library loaded."""
    try:
        binding = _import_binding()
        import ctypes  # noqa: PLC0415 - some Python builds lack it
    except ImportError as error:
        raise NvmlUnavailable(NO_LIBRARY, "this Python cannot load the NVML binding: %s" % error) from None
    override = os.environ.get("MLW_NVML_LIBRARY")
    for path in (override,) if override else _LIBRARY_PATHS:
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        if binding.nvmlLib is None or binding.nvmlLib._name != path:
            binding._nvmlGetFunctionPointer_cache.clear()
            binding.nvmlLib = library
        return binding
    raise NvmlUnavailable(NO_LIBRARY, "libnvidia-ml.so.1, part of the NVIDIA driver, was not found")


def _import_binding() -> Any:
    _compile_binding()
    try:
        from ..vendor import pynvml  # type: ignore[attr-defined]  # noqa: PLC0415 - large, for GPU machines only
    except ImportError:  # the client has no vendored copy and uses the installed package
        import pynvml  # noqa: PLC0415
    return pynvml


def _compile_binding() -> None:
    """Compile the binding once per Python, in another process.

    Compiling it in this process would permanently use ten megabytes of memory.
    """
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "vendor")
    source = os.path.join(folder, "pynvml.py")
    compiled = os.path.join(folder, "__pycache__", "pynvml.%s.pyc" % sys.implementation.cache_tag)
    if os.path.exists(compiled) or not os.path.exists(source) or not sys.executable:
        return
    import subprocess  # noqa: PLC0415 - needed once per machine

    command = [sys.executable, "-I", "-S", "-c", "import py_compile, sys; py_compile.compile(sys.argv[1])", source]
    try:
        subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        pass  # the import compiles it instead


def _explain_init_error(code: int, message: str) -> str:
    if code == NO_DRIVER:
        return "the NVIDIA driver is not loaded"
    if code == MISMATCH:
        return "the NVIDIA driver was updated and the old one is still loaded (driver/library version mismatch)"
    if code == NO_PERMISSION:
        return "this user is not allowed to query the NVIDIA driver"
    return _explain_error(code, message)


def _explain_error(code: int, message: str) -> str:
    if code == LOST:
        return "it has fallen off the bus (GPU is lost)"
    if code == NEEDS_RESET:
        return "it must be reset"
    return "NVML error: %s" % message


def _decode(value: Any) -> Optional[str]:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
