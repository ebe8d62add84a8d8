"""Builds for a CUDA that the driver of the target is too old for. They run, on the processor, and few people notice."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from ..environments.dependencies import PipLine, Requirement
from .finding import ERROR, WARNING, Case, Finding, found
from .tables import BUILDS, CONDA_CUDA, DRIVERS, TORCH_TAGS
from .tables import Version as Numbers
from .write import admits, dotted, pinned, rewritten

_LATER = 30  # versions of one package that are looked at beyond the last one known


def cuda_newer_than_driver(case: Case) -> Iterator[Finding]:
    driver = case.driver
    if not case.gpu or driver is None or case.dependencies is None:
        return
    severity = ERROR if case.compute.nvidia_docker else WARNING
    entries: list[tuple[PipLine | Requirement, Numbers | None, str | None]] = [
        (line, cuda_of_pip(line), _older_pip(line, driver)) for line in _telling(case)
    ]
    entries += [(line, cuda_of_conda(line), _older_conda(line, driver)) for line in case.dependencies.conda]
    for line, cuda, new in entries:
        if cuda is None or runs(driver, cuda):
            continue
        why = f"{line.text} is built for CUDA {dotted(cuda)}, which {_needs(cuda, driver)}"
        more = "or install a newer driver on the target"
        yield found("cuda", severity, line, why, f"write {new}; {more}" if new else more[3:], new or False)
    for option in case.dependencies.options:
        tag = re.search(r"/whl/cu(\d+)(?:/|\Z)", option.value)
        cuda = _tagged(tag[1]) if tag else None
        if tag and cuda and not runs(driver, cuda):
            why = f"this index is that of CUDA {dotted(cuda)}, which {_needs(cuda, driver)}"
            best = _best_tag(driver, next((pinned(line) for line in case.pip if line.name == "torch"), None))
            new = option.text.replace(tag[0], tag[0].replace(f"cu{tag[1]}", best)) if best else None
            hint = f"write {new}" if new else "install a newer driver on the target"
            yield found("cuda", severity, option, why, hint, new or False)


def _telling(case: Case) -> list[PipLine]:
    """The frameworks, without the libraries of CUDA that a frozen list names beside them."""
    frameworks = any(cuda_of_pip(line) and not _is_library(line) for line in case.pip)
    return [line for line in case.pip if not (frameworks and _is_library(line))]


def _is_library(line: PipLine) -> bool:
    return (line.name or "").startswith(("nvidia-", "cuda-"))


def runs(driver: str, cuda: Numbers) -> bool:
    """Whether a driver runs what was built with a CUDA. Unknown ones are not judged."""
    oldest = oldest_driver(cuda)
    return oldest is None or _numbers(driver) >= _numbers(oldest)


def oldest_driver(cuda: Numbers) -> str | None:
    """From 11 on a driver counts for all minor versions of its CUDA."""
    for row, driver in DRIVERS:
        if row == cuda[: len(row)] or row == (*cuda, 0):
            return driver
    return None


def cuda_of_pip(line: PipLine) -> Numbers | None:
    """The CUDA that an entry brings: by its name, its extra, its local version, or by the newest version it admits."""
    name = line.name or ""
    local = re.search(r"(?:\+|%2[Bb])cu(?:da)?(\d{2,3})", line.text)
    if local:
        return _tagged(local[1])
    for word in (name, *line.extras):
        named = re.search(r"(?:\Acuda|-cuda|-cu)(\d{2,3})(?:\Z|x\Z|[-_])", word)
        if named:
            return _tagged(named[1])
    newest = _newest(line)
    return newest[1] if newest else None


def cuda_of_conda(line: Requirement) -> Numbers | None:
    build = re.search(r"cuda_?(\d{2})(\d)?", line.version.partition("=")[2].partition("=")[2])
    if line.name in CONDA_CUDA:
        number = re.match(r"={0,2}\s*(\d+)(?:\.(\d+))?", line.version)
        return tuple(int(part) for part in number.groups() if part) if number else None
    return tuple(int(part) for part in build.groups() if part) if build else None


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
        return next((row for row in reversed(rows) if Version(version) >= Version(row[0])), None)
    for index in reversed(range(len(rows))):
        following = Version(rows[index + 1][0]) if index + 1 < len(rows) else None
        if any(admits(line, one) for one in _candidates(rows[index][0], following)):
            return rows[index]
    return None


def _candidates(first: str, following: Version | None) -> Iterator[str]:
    major, minor = (int(part) for part in first.split("."))
    for later in range(minor, minor + _LATER):
        for patch in range(5):
            if following is None or Version(f"{major}.{later}.{patch}") < following:
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
    rows = [row for row in _rows(line) if Version(row[0]) < Version(version)]
    return any(admits(line, one) for row in rows for one in _candidates(row[0], Version(version)))


def _older_conda(line: Requirement, driver: str) -> str | None:
    if line.name == "pytorch-cuda":
        best = "12.4" if runs(driver, (12,)) else "11.8" if runs(driver, (11,)) else None
    elif line.name in CONDA_CUDA:
        best = next((dotted(row) for row, oldest in DRIVERS if _numbers(driver) >= _numbers(oldest)), None)
    else:
        return None
    return f"{line.name}={best}" if best else None


def _best_tag(driver: str, version: str | None) -> str | None:
    """The tag of PyTorch's builds that a driver runs and that has a version of torch."""
    wanted = Version(version) if version else Version("2.7")
    for tag, cuda, first, last in TORCH_TAGS:
        if runs(driver, cuda) and Version(first) <= wanted <= Version(last):
            return tag
    return None


def _tagged(digits: str) -> Numbers | None:
    """118 is 11.8, 92 is 9.2, 12 is 12."""
    if len(digits) == 3:
        return int(digits[:2]), int(digits[2])
    return (int(digits),) if int(digits) >= 10 and digits[0] == "1" else (int(digits[0]), int(digits[1]))


def _numbers(driver: str) -> Numbers:
    return tuple(int(part) for part in re.findall(r"\d+", driver))


def _needs(cuda: Numbers, driver: str) -> str:
    return f"needs driver {oldest_driver(cuda)}; the target has {driver}"
