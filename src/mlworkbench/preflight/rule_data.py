"""What is known of packages, images and Pythons, as data. ``rules.py`` is what is done with it; checked in 2026.

When something is retired or a framework moves to another CUDA, this is the one file to change. Which driver runs
which CUDA stands in ``remote/shared/cuda_drivers.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..remote.shared.cuda_drivers import Version


# The CUDA that a package of pip is built with, from a version on; the version of a package need not be known to the
# solver yet, so the last row of each goes on for ever. "and-cuda" only counts with that extra.
BUILDS: dict[str, tuple[tuple[str, Version], ...]] = {
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

# Tags of PyTorch's own indexes (…/whl/cu126): CUDA, first and last version of torch there.
TORCH_TAGS = (("cu126", (12, 6), "2.6", "99"), ("cu121", (12, 1), "2.1", "2.5.99"), ("cu118", (11, 8), "2.0", "2.7.99"))

# Packages whose own version is that of CUDA, of conda and of pip.
CONDA_CUDA = ("pytorch-cuda", "cuda-version", "cuda-toolkit", "cudatoolkit", "cuda")
PIP_CUDA = ("cuda-toolkit", "nvidia-cuda-runtime")

# The last image of nvidia/cuda for a CUDA, the kinds and the system that there are of all of them.
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

# The first tensorflow[and-cuda] whose libraries are all on the package index.
AND_CUDA_FROM = "2.15.1"
# The first jax with the extra cuda12.
JAX_CUDA_FROM = "0.4.25"

# A part of every name that a rule looks for, but for those of RETIRED: no rule has a say about other entries.
WATCHED = ("cu", "cpu", "tensorflow", "tf-", "torch", "jax", "cntk")


class Retired(NamedTuple):
    """A package that is on the index and cannot be installed any more."""

    name: str
    why: str
    instead: str | None  # None: the line goes
    hint: str
    gone: str = ""  # specifier of the versions that are gone; all of them if empty


RETIRED = (
    Retired(
        "tensorflow-gpu",
        "tensorflow-gpu was retired in 2022: its latest version is a placeholder that fails to install",
        "tensorflow[and-cuda]",
        "tensorflow[and-cuda] includes CUDA",
        gone="==2.12.0",
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

# Newest tensorflow-gpu with a wheel for a Python that tensorflow[and-cuda] does not have, and its CUDA.
LAST_TENSORFLOW_GPU = {
    (2, 7): "2.1.0",
    (3, 3): "1.14.0",
    (3, 4): "1.14.0",
    (3, 5): "2.3.1",
    (3, 6): "2.6.2",
    (3, 7): "2.11.0",
    (3, 8): "2.11.0",
}


class Dead(NamedTuple):
    """Addresses that answer no more."""

    host: str  # pattern
    why: str


DEAD = (
    Dead(r"(?:www\.)?cntk\.ai", "cntk.ai no longer hosts the CNTK wheels"),
    Dead(r"azuremldownloads\.azureedge\.net", "the package index of Azure ML Workbench no longer exists"),
)
# Images that their makers took back, without tags. Copies in other registries have longer names.
WITHDRAWN = ("microsoft/mmlspark",)

# Where CNTK's wheels are now, on the package index: versions and Pythons that there are for Linux.
CNTK_FIRST, CNTK_LAST, CNTK_PYTHONS = "2.5", "2.7", ((2, 7), (3, 5), (3, 6))

# Names on the public index: only these may stand for an address, for a stranger may own any other name there.
PUBLIC = frozenset(
    "cntk cntk-gpu h5py jax jaxlib keras matplotlib numpy pandas pillow scikit-learn scipy tensorflow tensorflow-cpu"
    " tensorflow-gpu torch torchaudio torchvision xgboost lightgbm".split()
)

# Packages of conda that only come without a GPU → the same with one; None: the line goes.
CONDA_CPU = {
    "cpuonly": None,
    "pytorch-cpu": "pytorch-gpu",
    "tensorflow-cpu": "tensorflow-gpu",
    "tensorflow-mkl": "tensorflow-gpu",
    "tensorflow-eigen": "tensorflow-gpu",
}
# Of these, a build string such as cpu_* picks the one without.
CONDA_FRAMEWORKS = ("pytorch", "tensorflow", "tensorflow-base", "jaxlib", "torchvision", "torchaudio", "libtorch")

# Pythons that can be had: uv's own from one on; conda-forge's, by platform, from one on and before that single ones.
UV_PYTHON_FROM = (3, 8)
CONDA_FROM = {"x86_64": (3, 4), "aarch64": (3, 6), "ppc64le": (3, 6)}
CONDA_ALSO = ((2, 7),)
# Older Pythons than this one cannot have packages of pip: uv does not know them.
PIP_FROM = (3, 6)
NEWEST_PYTHON = (3, 15)
