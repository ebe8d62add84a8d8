"""Tests and fakes for plugin authors: contract suites, fake hosts, GPUs, and clocks, and fixtures.

Nothing else in ML Workbench imports this package, and it is the only one that needs pytest.
"""

try:
    import pytest
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "mlworkbench.testing needs pytest; hint: run 'pip install mlworkbench[testing]'", name="pytest"
    ) from error
else:
    # pytest explains failed asserts only in modules that are registered before their first import.
    pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in ("host_contract", "starter_contract", "user")))

from .fake_clock import FakeClock
from .fake_gpus import USE_GPU, CompilerNotFound, FakeGpus
from .fake_host import FakeHost
from .host_contract import HostContract
from .inputs import environment_site, framework_setting
from .processes import end_processes, is_alive
from .starter_contract import StarterContract
from .target_folder import TargetFolder
from .user import CommandResult, User
from .waiting import wait_until

__all__ = [
    "USE_GPU",
    "CommandResult",
    "CompilerNotFound",
    "FakeClock",
    "FakeGpus",
    "FakeHost",
    "HostContract",
    "StarterContract",
    "TargetFolder",
    "User",
    "end_processes",
    "environment_site",
    "framework_setting",
    "is_alive",
    "wait_until",
]
