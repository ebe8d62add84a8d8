"""Memory queries with drivers that lack a newer function."""

from __future__ import annotations

from mlworkbench.remote.gpus.nvml import NO_FUNCTION, Card


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


class OldDriver:
    """A binding without nvmlDeviceGetMemoryInfo_v2, as with drivers before version 510."""

    NVMLError = NVMLError
    NVML_ERROR_NOT_SUPPORTED = 3
    nvmlMemory_v2 = object()

    def __init__(self) -> None:
        self.calls = 0

    def nvmlDeviceGetMemoryInfo(self, handle: str, version: object = None) -> str:
        self.calls += 1
        if version is not None:
            raise NVMLError(NO_FUNCTION)
        return f"memory of {handle}"


def test_memory_on_an_old_driver_is_known_from_the_first_query() -> None:
    binding = OldDriver()
    card = Card(binding, 0, "card 0", None)
    assert [card.memory(), card.memory()] == ["memory of card 0"] * 2
    assert binding.calls == 3, "the query that the driver lacks is tried once"
