"""Data for the rules about packages, images, and Python versions; checked in 2026.

Update this file when a package is retired or a framework moves to another CUDA version. The driver
versions for CUDA are in ``remote/shared/cuda_drivers.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..remote.shared.cuda_drivers import Version


# First package version for each CUDA version of pip packages. The last row has no upper limit.
# Rows with "and-cuda" apply only with that extra.
CUDA_BUILDS: dict[str, tuple[tuple[str, Version], ...]] = {
    "torch": (
        ("1.13", (11, 7)),
        ("2.1", (12, 1)),
        ("2.5", (12, 4)),
        ("2.7", (12, 6)),
        ("2.8", (12, 8)),
        ("2.11", (13, 0)),
        ("2.15", (13, 2)),
    ),
    "tensorflow[and-cuda]": (("2.15", (12, 2)), ("2.16", (12, 3)), ("2.18", (12, 5)), ("2.20", (12, 9))),
    "tensorflow-gpu": (
        ("1.3", (8, 0)),
        ("1.5", (9, 0)),
        ("1.13", (10, 0)),
        ("2.1", (10, 1)),
        ("2.4", (11, 0)),
        ("2.5", (11, 2)),
    ),
    "cntk-gpu": (("2.5", (9, 0)), ("2.7", (10, 0))),
}

# Tags of the PyTorch indexes (…/whl/cu126), each with its CUDA version and its first and last torch version.
TORCH_TAGS = (("cu126", (12, 6), "2.6", "99"), ("cu121", (12, 1), "2.1", "2.5.99"), ("cu118", (11, 8), "2.0", "2.7.99"))

# Conda and pip packages whose version is the CUDA version.
CONDA_CUDA = ("pytorch-cuda", "cuda-version", "cuda-toolkit", "cudatoolkit", "cuda")
PIP_CUDA = ("cuda-toolkit", "nvidia-cuda-runtime")

# The last nvidia/cuda image for each CUDA version. All are available in CUDA_IMAGE_KINDS for CUDA_IMAGE_SYSTEM.
CUDA_IMAGES: dict[Version, str] = {
    (13, 0): "13.0.2",
    (12, 9): "12.9.1",
    (12, 8): "12.8.1",
    (12, 6): "12.6.3",
    (12, 5): "12.5.1",
    (12, 4): "12.4.1",
    (12, 3): "12.3.2",
    (12, 2): "12.2.2",
    (12, 1): "12.1.1",
    (12, 0): "12.0.1",
    (11, 8): "11.8.0",
}
CUDA_IMAGE_KINDS, CUDA_IMAGE_SYSTEM = ("base", "runtime", "devel"), "ubuntu22.04"

# The first version of tensorflow[and-cuda] whose libraries are all on the package index.
AND_CUDA_FROM = "2.15.1"
# The first version of jax with the extra cuda12.
JAX_CUDA_FROM = "0.4.25"

# Every package name to which a rule applies contains one of these, except the names in RETIRED.
WATCHED = ("cu", "cpu", "tensorflow", "tf-", "torch", "jax", "cntk")


class Retired(NamedTuple):
    """A package on the index that can no longer be installed."""

    name: str
    why: str
    replacement: str | None  # None: remove the line
    hint: str
    versions: str = ""  # specifier of the affected versions; empty: all versions


RETIRED = (
    Retired(
        "tensorflow-gpu",
        "tensorflow-gpu was retired in 2022: its latest version is a placeholder that fails to install",
        "tensorflow[and-cuda]",
        "tensorflow[and-cuda] includes CUDA",
        versions="==2.12.0",
    ),
    Retired(
        "tf-nightly-gpu",
        "tf-nightly-gpu was retired in 2022 and fails to install",
        "tf-nightly[and-cuda]",
        "tf-nightly[and-cuda] includes CUDA",
    ),
    Retired(
        "sklearn",
        "sklearn on PyPI is a placeholder that fails to install",
        "scikit-learn",
        "the package is named scikit-learn",
    ),
    Retired("pytorch", "pytorch on PyPI is a placeholder that fails to install", "torch", "the package is named torch"),
    Retired(
        "azureml-requirements",
        "azureml-requirements was part of Azure ML Workbench and is no longer available",
        None,
        "list the packages that the script imports; azureml.logging is available in every run",
    ),
)

# Newest tensorflow-gpu with a wheel for each Python version that tensorflow[and-cuda] does not support.
LAST_TENSORFLOW_GPU = {
    (2, 7): "2.1.0",
    (3, 3): "1.14.0",
    (3, 4): "1.14.0",
    (3, 5): "2.3.1",
    (3, 6): "2.6.2",
    (3, 7): "2.11.0",
    (3, 8): "2.11.0",
}


class DeadHost(NamedTuple):
    """A host that no longer exists or no longer serves packages."""

    host: str  # regular expression
    why: str


DEAD_HOSTS = (
    DeadHost(r"(?:www\.)?cntk\.ai", "cntk.ai no longer hosts the CNTK wheels"),
    DeadHost(r"azuremldownloads\.azureedge\.net", "the package index of Azure ML Workbench no longer exists"),
)
# Images, without tags, that their publishers withdrew. Copies in other registries have longer names.
WITHDRAWN = ("microsoft/mmlspark",)

# CNTK on the package index for Linux: first and last version, and supported Python versions.
CNTK_FIRST, CNTK_LAST, CNTK_PYTHONS = "2.5", "2.7", ((2, 7), (3, 5), (3, 6))

# Packages that a fix may install from the public index instead of a URL. Other names are not safe, because anyone
# can register them there.
PUBLIC_PACKAGES = frozenset(
    "cntk cntk-gpu h5py jax jaxlib keras matplotlib numpy pandas pillow scikit-learn scipy tensorflow tensorflow-cpu"
    " tensorflow-gpu torch torchaudio torchvision xgboost lightgbm".split()
)

# Conda packages without GPU support → equivalents with GPU support, or None to remove the line.
CONDA_CPU = {
    "cpuonly": None,
    "pytorch-cpu": "pytorch-gpu",
    "tensorflow-cpu": "tensorflow-gpu",
    "tensorflow-mkl": "tensorflow-gpu",
    "tensorflow-eigen": "tensorflow-gpu",
}
# For these packages, a build string such as cpu_* selects a build without GPU support.
CONDA_FRAMEWORKS = ("pytorch", "tensorflow", "tensorflow-base", "jaxlib", "torchvision", "torchaudio", "libtorch")

# Oldest Python versions from uv and, by architecture, from conda-forge. CONDA_ALSO lists older exceptions.
UV_PYTHON_FROM = (3, 8)
CONDA_FROM = {"x86_64": (3, 4), "aarch64": (3, 6), "ppc64le": (3, 6)}
CONDA_ALSO = ((2, 7),)
# Oldest Python version that uv supports for pip packages.
PIP_FROM = (3, 6)
NEWEST_PYTHON = (3, 15)
