"""Find builds for a CUDA version that needs a newer driver. They often fall back to the CPU without an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from ..environments.dependencies import Option, PipLine, Requirement
from ..remote.shared.cuda_drivers import RELEASES, driver_supports, newest_cuda, oldest_driver
from .finding import ERROR, WARNING, CheckContext, Finding, make_finding
from .pip_entries import admits, format_version, is_older, pinned_version, with_marker
from .rule_data import (
    CONDA_CUDA,
    CUDA_BUILDS,
    CUDA_IMAGE_KINDS,
    CUDA_IMAGE_SYSTEM,
    CUDA_IMAGES,
    PIP_CUDA,
    TORCH_TAGS,
)

if TYPE_CHECKING:
    from ..remote.shared.cuda_drivers import Version as Numbers

Entry = TypeVar("Entry", PipLine, Requirement)
_TORCH = ("torch", "torchvision", "torchaudio")
_INDEX = re.compile(r"/whl/cu(\d+)(?:/|\Z)")
_LOOKAHEAD = 30  # minor versions to consider, starting with the first version of a row


def cuda_newer_than_driver(context: CheckContext) -> Iterator[Finding]:
    driver = context.driver
    if not context.has_gpu or driver is None or context.dependencies is None or driver_supports(driver, RELEASES[0][0]):
        return
    for line in _cuda_lines(context):
        yield from _check_entry(context, line, cuda_of_pip(line), _older_pip, driver)
    for requirement in context.dependencies.conda:
        yield from _check_entry(context, requirement, cuda_of_conda(requirement), _older_conda, driver)
    for option in context.dependencies.options:
        yield from _check_index(context, option, driver)


def _check_entry(
    context: CheckContext, line: Entry, cuda: Numbers | None, older: Callable[[Entry, str], str | None], driver: str
) -> Iterator[Finding]:
    if cuda is None or driver_supports(driver, cuda):
        return
    new = older(line, driver)
    why = f"{line.text} is built for CUDA {format_version(cuda)}, which {_driver_requirement(cuda, driver)}"
    more = "or install a newer driver on the target"
    yield make_finding(
        "cuda", _severity(context, cuda), line, why, f"use {new}; {more}" if new else more[3:], new or False
    )


def _check_index(context: CheckContext, option: Option, driver: str) -> Iterator[Finding]:
    tag = _INDEX.search(option.value)
    cuda = _parse_tag(tag[1]) if tag else None
    if tag and cuda and not driver_supports(driver, cuda):
        why = f"this index is for CUDA {format_version(cuda)}, which {_driver_requirement(cuda, driver)}"
        best = _best_tag(driver, next((pinned_version(line) for line in context.pip if line.name == "torch"), None))
        new = option.text.replace(tag[0], tag[0].replace(f"cu{tag[1]}", best)) if best else None
        hint = f"use {new}" if new else "install a newer driver on the target"
        yield make_finding("cuda", _severity(context, cuda), option, why, hint, new or False)


def _severity(context: CheckContext, cuda: Numbers) -> str:
    """Return ERROR if GPUs are requested and no image provides CUDA libraries that are new enough.

    A CUDA image may contain compatibility libraries for older drivers.
    """
    has_newer_libraries = (cuda_of_image(context.compute.base_docker_image) or (0,))[0] >= cuda[0]
    return ERROR if context.compute.nvidia_docker and not has_newer_libraries else WARNING


def image_newer_than_driver(context: CheckContext) -> Iterator[Finding]:
    """Warn about an image for a newer CUDA version. It may still run on data center GPUs."""
    image, line, driver = context.compute.base_docker_image, context.image_line, context.driver
    cuda = cuda_of_image(image)
    if not (context.contained and context.has_gpu and image and line and driver and cuda) or driver_supports(
        driver, cuda
    ):
        return
    new = _older_image(image, driver)
    why = f"the image is built for CUDA {format_version(cuda)}, which {_driver_requirement(cuda, driver)}"
    more = "install a newer driver on the target"
    yield make_finding("cuda-image", WARNING, line, why, f"use {new}, or {more}" if new else more, new or False)


def cuda_of_image(image: str | None) -> Numbers | None:
    """Return the CUDA version in an image tag: nvidia/cuda:12.4.1-runtime-…, pytorch:2.4-cuda12.1-…."""
    name, _, tag = (image or "").split("@")[0].rpartition(":")
    match = re.match(r"(\d+)\.(\d+)", tag) if re.search(r"(?:\A|/)cuda\Z", name) else None
    match = match or re.search(r"(?:\A|[-_.])cuda(\d+)\.(\d+)", tag)
    return (int(match[1]), int(match[2])) if match else None


def _older_image(image: str, driver: str) -> str | None:
    """Return an image of the same kind for the newest CUDA version that the driver supports."""
    name, _, tag = image.partition(":")
    kind = tag.split("-")[1] if tag.count("-") >= 2 else ""
    newest = tuple(int(part) for part in (newest_cuda(driver) or "0").split("."))
    best = next((last for cuda, last in CUDA_IMAGES.items() if cuda <= newest), None)
    if not best or not re.search(r"(?:\A|/)nvidia/cuda\Z", name) or kind not in CUDA_IMAGE_KINDS:
        return None
    return f"{name}:{best}-{kind}-{CUDA_IMAGE_SYSTEM}"


def _cuda_lines(context: CheckContext) -> list[PipLine]:
    """Return the lines to check.

    If a framework is listed, CUDA libraries are left out, because ``pip freeze`` lists them along with it.
    """
    lines = [line for line in context.pip if not (line.name in _TORCH and _from_tagged_index(context, line))]
    has_frameworks = any(cuda_of_pip(line) and not _is_library(line) for line in lines)
    return [line for line in lines if not (has_frameworks and _is_library(line))]


def _from_tagged_index(context: CheckContext, line: PipLine) -> bool:
    """Return whether PyTorch comes from an index for one CUDA version, which is checked separately.

    An extra index without the newest PyTorch versions does not count, unless PyTorch is pinned.
    """
    if "+" in line.specifier or line.url or line.path or context.dependencies is None:
        return False
    last = {tag: last for tag, _, _, last in TORCH_TAGS}
    for option in context.dependencies.options:
        tag = _INDEX.search(option.value)
        if tag and (
            option.name != "--extra-index-url" or pinned_version(line) or last.get(f"cu{tag[1]}", "99") == "99"
        ):
            return True
    return False


def _is_library(line: PipLine) -> bool:
    return (line.name or "").startswith(("nvidia-", "cuda-"))


def cuda_of_pip(line: PipLine) -> Numbers | None:
    """Return the CUDA version of an entry.

    It comes from the name, an extra, or the local version; otherwise from the newest allowed version.
    """
    name = line.name or ""
    local = re.search(r"(?:\+|%2[Bb])(?:cu(?:da)?(\d{2,3})|cpu)", line.text)
    if local:
        return _parse_tag(local[1]) if local[1] else None
    for text in (name, *line.extras):
        match = re.search(r"(?:\Acuda|-cuda|-cu)(\d{2,3})(?:\Z|x\Z|[-_])", text)
        if match:
            return _parse_tag(match[1])
    if name in PIP_CUDA:
        return _lowest_version(line.specifier)
    newest = _newest(line)
    return newest[1] if newest else None


def cuda_of_conda(line: Requirement) -> Numbers | None:
    build = re.search(r"cuda_?(\d{2})(\d)?", line.version.partition("=")[2].partition("=")[2])
    if line.name in CONDA_CUDA:
        return _lowest_version(line.version)
    return tuple(int(part) for part in build.groups() if part) if build else None


def _lowest_version(version: str) -> Numbers | None:
    """Return the exact or lowest version that a specifier allows."""
    number = re.match(r"(?:>=|~=|={0,2})\s*(\d+)(?:\.(\d+))?", version)
    return tuple(int(part) for part in number.groups() if part) if number else None


def _rows(line: PipLine) -> tuple[tuple[str, Numbers], ...]:
    extra = "[and-cuda]" if "and-cuda" in line.extras else ""
    return CUDA_BUILDS.get((line.name or "") + extra, ())


def _newest(line: PipLine) -> tuple[str, Numbers] | None:
    """Return the ``CUDA_BUILDS`` row for the newest version that an entry allows."""
    rows = _rows(line)
    version = pinned_version(line)
    if not rows or line.path or (line.url and not version):
        return None
    if version and "*" not in line.specifier:
        return next((row for row in reversed(rows) if not is_older(version, row[0])), None)
    for index in reversed(range(len(rows))):
        following = rows[index + 1][0] if index + 1 < len(rows) else None
        if any(admits(line, candidate) for candidate in _candidates(rows[index][0], following)):
            return rows[index]
    return None


def _candidates(first: str, following: str | None) -> Iterator[str]:
    major, minor = (int(part) for part in first.split("."))
    for later in range(minor, minor + _LOOKAHEAD):
        for patch in range(5):
            if following is None or is_older(f"{major}.{later}.{patch}", following):
                yield f"{major}.{later}.{patch}"


def _older_pip(line: PipLine, driver: str) -> str | None:
    """Return an entry for a build of the same package that the driver supports."""
    rows = _rows(line)
    extras = f"[{','.join(line.extras)}]" if line.extras else ""
    if (
        line.name == "jax"
        and any(extra.startswith("cuda13") for extra in line.extras)
        and driver_supports(driver, (12,))
    ):
        return with_marker(line, f"jax[cuda12]{line.specifier}")
    local = re.search(r"==\s*([\d.]+)\+cu\d+", line.specifier)
    compatible = [index for index, row in enumerate(rows) if driver_supports(driver, row[1])]
    if local:
        tag = _best_tag(driver, local[1]) if line.name == "torch" else None
        return with_marker(line, f"torch=={local[1]}+{tag}") if tag else None
    if not rows or not compatible or line.url:
        return None
    too_new = next((row[0] for row in rows[compatible[-1] + 1 :]), None)
    if too_new is None:
        return None
    lower = f">={rows[compatible[-1]][0]}," if line.specifier else ""
    if pinned_version(line):
        return with_marker(line, f"{line.name}{extras}{lower}<{too_new}")
    prefix = f"{line.specifier}," if line.specifier and _admits_older(line, too_new) else ""
    return with_marker(line, f"{line.name}{extras}{prefix}<{too_new}")


def _admits_older(line: PipLine, version: str) -> bool:
    """Return whether an entry allows a version older than ``version``."""
    rows = [row for row in _rows(line) if is_older(row[0], version)]
    return any(admits(line, candidate) for row in rows for candidate in _candidates(row[0], version))


def _older_conda(line: Requirement, driver: str) -> str | None:
    if line.name == "pytorch-cuda":
        best = "12.4" if driver_supports(driver, (12,)) else "11.8" if driver_supports(driver, (11,)) else None
    elif line.name in CONDA_CUDA:
        best = next((_family(row) for row, _ in RELEASES if driver_supports(driver, row)), None)
    else:
        return None
    return f"{line.name}={best}" if best else None


def _family(cuda: Numbers) -> str:
    """Return the version to install: 12 for any 12.x, but the exact version before 11.

    Since CUDA 11, a driver supports all minor versions of a major version.
    """
    return format_version(cuda[:1] if cuda[0] >= 11 else cuda)


def _best_tag(driver: str, version: str | None) -> str | None:
    """Return a tag of PyTorch builds that the driver supports and that includes this torch version."""
    torch_version = version or "2.7"
    for tag, cuda, first, last in TORCH_TAGS:
        if driver_supports(driver, cuda) and not is_older(torch_version, first) and not is_older(last, torch_version):
            return tag
    return None


def _parse_tag(digits: str) -> Numbers | None:
    """Parse the digits of a CUDA tag: 118 is 11.8, 92 is 9.2, and 12 is 12."""
    if len(digits) == 3:
        return int(digits[:2]), int(digits[2])
    return (int(digits),) if int(digits) >= 10 and digits[0] == "1" else (int(digits[0]), int(digits[1]))


def _driver_requirement(cuda: Numbers, driver: str) -> str:
    return f"needs driver {oldest_driver(cuda)}; the target has {driver}"
