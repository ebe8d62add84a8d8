"""Builds for a CUDA that the driver of the target is too old for. They run, on the processor, and few people notice."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from ..environments.dependencies import Option, PipLine, Requirement
from ..remote.shared.cuda_drivers import RELEASES, cuda_of, oldest_driver, runs
from .finding import ERROR, WARNING, Case, Finding, found
from .tables import (
    BUILDS,
    CONDA_CUDA,
    CUDA_IMAGE_KINDS,
    CUDA_IMAGE_SYSTEM,
    CUDA_IMAGES,
    PIP_CUDA,
    TORCH_TAGS,
)
from .write import admits, before, dotted, pinned, rewritten

if TYPE_CHECKING:
    from ..remote.shared.cuda_drivers import Version as Numbers

Entry = TypeVar("Entry", PipLine, Requirement)
_TORCH = ("torch", "torchvision", "torchaudio")
_INDEX = re.compile(r"/whl/cu(\d+)(?:/|\Z)")
_LATER = 30  # versions of one package that are looked at beyond the last one known


def cuda_newer_than_driver(case: Case) -> Iterator[Finding]:
    driver = case.driver
    if not case.gpu or driver is None or case.dependencies is None or runs(driver, RELEASES[0][0]):
        return
    for line in _telling(case):
        yield from _entry(case, line, cuda_of_pip(line), _older_pip, driver)
    for one in case.dependencies.conda:
        yield from _entry(case, one, cuda_of_conda(one), _older_conda, driver)
    for option in case.dependencies.options:
        yield from _index(case, option, driver)


def _entry(
    case: Case, line: Entry, cuda: Numbers | None, older: Callable[[Entry, str], str | None], driver: str
) -> Iterator[Finding]:
    if cuda is None or runs(driver, cuda):
        return
    new = older(line, driver)
    why = f"{line.text} is built for CUDA {dotted(cuda)}, which {_needs(cuda, driver)}"
    more = "or install a newer driver on the target"
    yield found("cuda", _grave(case, cuda), line, why, f"use {new}; {more}" if new else more[3:], new or False)


def _index(case: Case, option: Option, driver: str) -> Iterator[Finding]:
    tag = _INDEX.search(option.value)
    cuda = _tagged(tag[1]) if tag else None
    if tag and cuda and not runs(driver, cuda):
        why = f"this index is for CUDA {dotted(cuda)}, which {_needs(cuda, driver)}"
        best = _best_tag(driver, next((pinned(line) for line in case.pip if line.name == "torch"), None))
        new = option.text.replace(tag[0], tag[0].replace(f"cu{tag[1]}", best)) if best else None
        hint = f"use {new}" if new else "install a newer driver on the target"
        yield found("cuda", _grave(case, cuda), option, why, hint, new or False)


def _grave(case: Case, cuda: Numbers) -> str:
    """An error where GPUs were asked for; but images of CUDA bring libraries that lift some drivers."""
    lifted = (cuda_of_image(case.compute.base_docker_image) or (0,))[0] >= cuda[0]
    return ERROR if case.compute.nvidia_docker and not lifted else WARNING


def image_newer_than_driver(case: Case) -> Iterator[Finding]:
    """On GPUs of data centres an image may run all the same, so nobody is stopped."""
    image, at, driver = case.compute.base_docker_image, case.image_at, case.driver
    cuda = cuda_of_image(image)
    if not (case.contained and case.gpu and image and at and driver and cuda) or runs(driver, cuda):
        return
    new = _older_image(image, driver)
    why = f"the image is built for CUDA {dotted(cuda)}, which {_needs(cuda, driver)}"
    more = "install a newer driver on the target"
    yield found("cuda-image", WARNING, at, why, f"use {new}, or {more}" if new else more, new or False)


def cuda_of_image(image: str | None) -> Numbers | None:
    """The CUDA that the tag of an image names: nvidia/cuda:12.4.1-runtime-…, pytorch:2.4-cuda12.1-…"""
    name, _, tag = (image or "").split("@")[0].rpartition(":")
    named = re.match(r"(\d+)\.(\d+)", tag) if re.search(r"(?:\A|/)cuda\Z", name) else None
    named = named or re.search(r"(?:\A|[-_.])cuda(\d+)\.(\d+)", tag)
    return (int(named[1]), int(named[2])) if named else None


def _older_image(image: str, driver: str) -> str | None:
    """An image of the same kind for the newest CUDA that came with the driver."""
    name, _, tag = image.partition(":")
    kind = tag.split("-")[1] if tag.count("-") >= 2 else ""
    newest = tuple(int(part) for part in (cuda_of(driver) or "0").split("."))
    best = next((last for cuda, last in CUDA_IMAGES.items() if cuda <= newest), None)
    if not best or not re.search(r"(?:\A|/)nvidia/cuda\Z", name) or kind not in CUDA_IMAGE_KINDS:
        return None
    return f"{name}:{best}-{kind}-{CUDA_IMAGE_SYSTEM}"


def _telling(case: Case) -> list[PipLine]:
    """The frameworks, without the libraries of CUDA that a frozen list names beside them."""
    lines = [line for line in case.pip if not (line.name in _TORCH and _from_tagged_index(case, line))]
    frameworks = any(cuda_of_pip(line) and not _is_library(line) for line in lines)
    return [line for line in lines if not (frameworks and _is_library(line))]


def _from_tagged_index(case: Case, line: PipLine) -> bool:
    """PyTorch from an index of one CUDA, which is judged by itself: its builds come before those of the package index.

    Unless that index has stopped at an older version, and the package index stands beside it.
    """
    if "+" in line.specifier or line.url or line.path or case.dependencies is None:
        return False
    last = {tag: last for tag, _, _, last in TORCH_TAGS}
    for option in case.dependencies.options:
        tag = _INDEX.search(option.value)
        if tag and (option.name != "--extra-index-url" or pinned(line) or last.get(f"cu{tag[1]}", "99") == "99"):
            return True
    return False


def _is_library(line: PipLine) -> bool:
    return (line.name or "").startswith(("nvidia-", "cuda-"))


def cuda_of_pip(line: PipLine) -> Numbers | None:
    """The CUDA that an entry brings: by its name, its extra, its local version, or by the newest version it admits."""
    name = line.name or ""
    local = re.search(r"(?:\+|%2[Bb])(?:cu(?:da)?(\d{2,3})|cpu)", line.text)
    if local:
        return _tagged(local[1]) if local[1] else None
    for word in (name, *line.extras):
        named = re.search(r"(?:\Acuda|-cuda|-cu)(\d{2,3})(?:\Z|x\Z|[-_])", word)
        if named:
            return _tagged(named[1])
    if name in PIP_CUDA:
        return _leading(line.specifier)
    newest = _newest(line)
    return newest[1] if newest else None


def cuda_of_conda(line: Requirement) -> Numbers | None:
    build = re.search(r"cuda_?(\d{2})(\d)?", line.version.partition("=")[2].partition("=")[2])
    if line.name in CONDA_CUDA:
        return _leading(line.version)
    return tuple(int(part) for part in build.groups() if part) if build else None


def _leading(version: str) -> Numbers | None:
    """The version that is asked for, or the oldest one."""
    number = re.match(r"(?:>=|~=|={0,2})\s*(\d+)(?:\.(\d+))?", version)
    return tuple(int(part) for part in number.groups() if part) if number else None


def _rows(line: PipLine) -> tuple[tuple[str, Numbers], ...]:
    extra = "[and-cuda]" if "and-cuda" in line.extras else ""
    return BUILDS.get((line.name or "") + extra, ())


def _newest(line: PipLine) -> tuple[str, Numbers] | None:
    """The row of the newest version that an entry admits."""
    rows = _rows(line)
    version = pinned(line)
    if not rows or line.path or (line.url and not version):
        return None
    if version and "*" not in line.specifier:
        return next((row for row in reversed(rows) if not before(version, row[0])), None)
    for index in reversed(range(len(rows))):
        following = rows[index + 1][0] if index + 1 < len(rows) else None
        if any(admits(line, one) for one in _candidates(rows[index][0], following)):
            return rows[index]
    return None


def _candidates(first: str, following: str | None) -> Iterator[str]:
    major, minor = (int(part) for part in first.split("."))
    for later in range(minor, minor + _LATER):
        for patch in range(5):
            if following is None or before(f"{major}.{later}.{patch}", following):
                yield f"{major}.{later}.{patch}"


def _older_pip(line: PipLine, driver: str) -> str | None:
    """The same package in a build that the driver runs."""
    rows = _rows(line)
    extras = f"[{','.join(line.extras)}]" if line.extras else ""
    if line.name == "jax" and any(extra.startswith("cuda13") for extra in line.extras) and runs(driver, (12,)):
        return rewritten(line, f"jax[cuda12]{line.specifier}")
    local = re.search(r"==\s*([\d.]+)\+cu\d+", line.specifier)
    fitting = [index for index, row in enumerate(rows) if runs(driver, row[1])]
    if local:
        tag = _best_tag(driver, local[1]) if line.name == "torch" else None
        return rewritten(line, f"torch=={local[1]}+{tag}") if tag else None
    if not rows or not fitting or line.url:
        return None
    too_new = next((row[0] for row in rows[fitting[-1] + 1 :]), None)
    if too_new is None:
        return None
    lower = f">={rows[fitting[-1]][0]}," if line.specifier else ""
    if pinned(line):
        return rewritten(line, f"{line.name}{extras}{lower}<{too_new}")
    keeps = f"{line.specifier}," if line.specifier and _newest_below(line, too_new) else ""
    return rewritten(line, f"{line.name}{extras}{keeps}<{too_new}")


def _newest_below(line: PipLine, version: str) -> bool:
    """Whether an entry admits anything older than a version."""
    rows = [row for row in _rows(line) if before(row[0], version)]
    return any(admits(line, one) for row in rows for one in _candidates(row[0], version))


def _older_conda(line: Requirement, driver: str) -> str | None:
    if line.name == "pytorch-cuda":
        best = "12.4" if runs(driver, (12,)) else "11.8" if runs(driver, (11,)) else None
    elif line.name in CONDA_CUDA:
        best = next((_family(row) for row, _ in RELEASES if runs(driver, row)), None)
    else:
        return None
    return f"{line.name}={best}" if best else None


def _family(cuda: Numbers) -> str:
    """12 for all of 12: a driver runs every one of them. Before 11 each counted for itself."""
    return dotted(cuda[:1] if cuda[0] >= 11 else cuda)


def _best_tag(driver: str, version: str | None) -> str | None:
    """The tag of PyTorch's builds that a driver runs and that has a version of torch."""
    wanted = version or "2.7"
    for tag, cuda, first, last in TORCH_TAGS:
        if runs(driver, cuda) and not before(wanted, first) and not before(last, wanted):
            return tag
    return None


def _tagged(digits: str) -> Numbers | None:
    """118 is 11.8, 92 is 9.2, 12 is 12."""
    if len(digits) == 3:
        return int(digits[:2]), int(digits[2])
    return (int(digits),) if int(digits) >= 10 and digits[0] == "1" else (int(digits[0]), int(digits[1]))


def _needs(cuda: Numbers, driver: str) -> str:
    return f"needs driver {oldest_driver(cuda)}; the target has {driver}"
