"""NVML, the driver's own library, through the vendor's binding. A figure that a card does not tell is None."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set

# Where it may be although the loader does not find it: container hosts, Windows' Linux, drivers kept in a container.
_PLACES = (
    "libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/usr/lib64-nvidia/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
)
NO_DRIVER, NO_PERMISSION, NO_LIBRARY, NO_FUNCTION, LOST, NEEDS_RESET, MISMATCH = 9, 4, 12, 13, 15, 16, 18
_GONE = (LOST, NEEDS_RESET)
_SLICES = 8  # of one card at most
_FEW = 32  # processes on one card
_UNKNOWN = 2**64 - 1  # how NVML says that it does not know a size


class NoNvml(Exception):
    """NVML cannot be used here. ``code`` is NVML's own; the text says it in a sentence."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Lost(Exception):
    """The card does not answer any more: it has fallen off the bus, or must be reset."""


class Nvml:
    """NVML at work. Whoever asks often keeps one: beginning costs far more than a question."""

    def __init__(self) -> None:
        self.binding = self._binding = _load()
        try:
            self._binding.nvmlInit()
        except self._binding.NVMLError as error:
            raise NoNvml(error.value, _explain(error.value, str(error))) from None

    def close(self) -> None:
        try:
            self._binding.nvmlShutdown()
        except self._binding.NVMLError:
            pass  # the driver went away meanwhile

    def driver(self) -> Optional[str]:
        return _text(self._ask(self._binding.nvmlSystemGetDriverVersion))

    def cuda(self) -> Optional[str]:
        """The newest CUDA that this driver can serve."""
        number = self._ask(self._binding.nvmlSystemGetCudaDriverVersion_v2)
        return "%d.%d" % (number // 1000, number % 1000 // 10) if number else None

    def cards(self) -> List[Card]:
        """All that the driver counts, also those that do not answer."""
        try:
            count = self._binding.nvmlDeviceGetCount()
        except self._binding.NVMLError as error:
            raise NoNvml(error.value, _explain(error.value, str(error))) from None
        return [self._card(index) for index in range(count)]

    def _card(self, index: int) -> Card:
        try:
            return Card(self._binding, index, self._binding.nvmlDeviceGetHandleByIndex(index), None)
        except self._binding.NVMLError as error:
            return Card(self._binding, index, None, _trouble(error.value, str(error)))

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except self._binding.NVMLError:
            return None


class Card:
    """One GPU, or a slice of one. ``trouble`` says why it cannot be asked anything."""

    def __init__(self, binding: Any, index: int, handle: Any, trouble: Optional[str]) -> None:
        self._binding = binding
        self._handle = handle
        self._untold: Set[str] = set()  # what this card was asked in vain
        self._room: Any = None
        self.index = index
        self.trouble = trouble

    def ask(self, name: str, *words: Any, default: Any = None) -> Any:
        """``nvmlDeviceGet<name>``; the default if the card does not tell. Raises Lost if the card is gone."""
        if self._handle is None:
            raise Lost(self.trouble)
        if name in self._untold:
            return default
        try:
            return getattr(self._binding, "nvmlDeviceGet" + name)(self._handle, *words)
        except self._binding.NVMLError as error:
            if error.value in _GONE:
                raise Lost(_trouble(error.value, str(error))) from None
            if error.value in (self._binding.NVML_ERROR_NOT_SUPPORTED, NO_FUNCTION, NO_PERMISSION):
                self._untold.add(name)
            return default

    def text(self, name: str) -> Optional[str]:
        return _text(self.ask(name))

    def memory(self) -> Any:
        """An object with total, used, free; the newer question leaves out what the driver keeps for itself."""
        return self.ask("MemoryInfo", self._binding.nvmlMemory_v2) if "MemoryInfo" not in self._untold else self._old()

    def _old(self) -> Any:
        try:
            return self._binding.nvmlDeviceGetMemoryInfo(self._handle)
        except self._binding.NVMLError:
            return None

    def processes(self, kind: str) -> Optional[List[Dict[str, Any]]]:
        """Those that have a context, ``kind`` Compute or Graphics; None if the card does not tell."""
        found = self._few(kind)
        if found is None:  # many, a driver before 510, or none that tells
            name = kind + "RunningProcesses_v3"
            found = self.ask(name)
            if found is None and name in self._untold:
                found = self.ask(kind + "RunningProcesses_v2")
        if found is None:
            return None
        unknown = (None, _UNKNOWN)
        return [
            {
                "pid": one.pid,
                "memory": None if one.usedGpuMemory in unknown else one.usedGpuMemory,
                "kind": kind.lower(),
            }
            for one in found
        ]

    def _few(self, kind: str) -> Any:
        """As the binding asks, with one call instead of two: it is the dearest of those that are put each second."""
        binding, name = self._binding, kind + "RunningProcesses_v3"
        if self._handle is None or name in self._untold:
            return None
        try:
            question = binding._nvmlGetFunctionPointer("nvmlDeviceGet" + name)
        except binding.NVMLError:
            return None
        if self._room is None:
            self._room = (binding.c_nvmlProcessInfo_v3_t * _FEW)()
        count = binding.c_uint(_FEW)
        return self._room[: count.value] if question(self._handle, binding.byref(count), self._room) == 0 else None

    def slices(self) -> List[Card]:
        """MIG devices."""
        mode = self.ask("MigMode")
        if not mode or not mode[0]:
            return []
        found = []
        for index in range(min(self.ask("MaxMigDeviceCount", default=0), _SLICES)):
            handle = self._slice(index)
            if handle is not None:
                found.append(Card(self._binding, index, handle, None))
        return found

    def _slice(self, index: int) -> Any:
        try:  # not by ask(): one that is not there says nothing of the next
            return self._binding.nvmlDeviceGetMigDeviceHandleByIndex(self._handle, index)
        except self._binding.NVMLError:
            return None


def _load() -> Any:
    """The vendor's module with the library in it."""
    try:
        binding = _import()
        import ctypes  # noqa: PLC0415 - not every Python has it
    except ImportError as error:
        raise NoNvml(NO_LIBRARY, "this Python cannot load the NVML binding: %s" % error) from None
    given = os.environ.get("MLW_NVML_LIBRARY")
    for place in (given,) if given else _PLACES:
        try:
            library = ctypes.CDLL(place)
        except OSError:
            continue
        if binding.nvmlLib is None or binding.nvmlLib._name != place:
            binding._nvmlGetFunctionPointer_cache.clear()
            binding.nvmlLib = library
        return binding
    raise NoNvml(NO_LIBRARY, "libnvidia-ml.so.1, part of the NVIDIA driver, was not found")


def _import() -> Any:
    _compile()
    try:
        from ..vendor import pynvml  # type: ignore[attr-defined]  # noqa: PLC0415 - megabytes, only where there are GPUs
    except ImportError:  # on the client's own machine it is where it was installed
        import pynvml  # noqa: PLC0415
    return pynvml


def _compile() -> None:
    """Let another process translate the binding, once per Python: whoever does it keeps ten megabytes of it."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "vendor")
    source = os.path.join(folder, "pynvml.py")
    made = os.path.join(folder, "__pycache__", "pynvml.%s.pyc" % sys.implementation.cache_tag)
    if os.path.exists(made) or not os.path.exists(source) or not sys.executable:
        return
    import subprocess  # noqa: PLC0415 - once per machine

    words = [sys.executable, "-I", "-S", "-c", "import py_compile, sys; py_compile.compile(sys.argv[1])", source]
    try:
        subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        pass  # then it is translated here


def _explain(code: int, words: str) -> str:
    if code == NO_DRIVER:
        return "the NVIDIA driver is not loaded"
    if code == MISMATCH:
        return "the NVIDIA driver was updated and the old one is still loaded (driver/library version mismatch)"
    if code == NO_PERMISSION:
        return "this user is not allowed to query the NVIDIA driver"
    return _trouble(code, words)


def _trouble(code: int, words: str) -> str:
    if code == LOST:
        return "it has fallen off the bus (GPU is lost)"
    if code == NEEDS_RESET:
        return "it must be reset"
    return "NVML error: %s" % words


def _text(value: Any) -> Optional[str]:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
