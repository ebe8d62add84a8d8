"""Preflight rules, each of which checks a planned run and yields findings, without I/O.

Their data is in ``rule_data``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from ..config.keys import DEFAULT_IMAGE
from ..environments.dependencies import UV_LOCK, Line, Option, PipLine, Requirement
from ..remote.shared.cuda_drivers import driver_supports
from .cuda_rules import cuda_newer_than_driver, image_newer_than_driver
from .finding import ERROR, WARNING, CheckContext, Finding, make_finding
from .pip_entries import admits, format_version, is_older, pinned_version, with_marker
from .rule_data import (
    AND_CUDA_FROM,
    CNTK_FIRST,
    CNTK_LAST,
    CNTK_PYTHONS,
    CONDA_ALSO,
    CONDA_CPU,
    CONDA_FRAMEWORKS,
    CONDA_FROM,
    DEAD_HOSTS,
    JAX_CUDA_FROM,
    LAST_TENSORFLOW_GPU,
    NEWEST_PYTHON,
    PIP_FROM,
    RETIRED,
    UV_PYTHON_FROM,
    WITHDRAWN,
)
from .wheel_rules import wheel_for_another_machine, wheel_for_another_python

Check = Callable[[CheckContext], Iterator[Finding]]


class Rule(NamedTuple):
    """A rule. ``doc`` describes what it looks for, in one sentence."""

    name: str
    doc: str
    check: Check
    in_locks: bool = False  # also applies to lock files, which list packages for all platforms


# -- no longer available -----------------------------------------------------------------------------


def retired(context: CheckContext) -> Iterator[Finding]:
    for line in context.pip:
        for row in RETIRED:
            if line.name != row.name or line.url or line.path:
                continue
            if row.versions and not admits(line, row.versions.removeprefix("==")):
                continue  # the entry does not allow the affected version
            new, hint = row.replacement, row.hint
            if row.name == "tensorflow-gpu" and context.python in LAST_TENSORFLOW_GPU:
                new = f"tensorflow-gpu=={LAST_TENSORFLOW_GPU[context.python]}"
                hint = (
                    f"that is the last version for Python {format_version(context.python)} and requires CUDA in the"
                    " image;"
                    " or pin a newer Python and use tensorflow[and-cuda], which includes CUDA"
                )
            yield make_finding("retired", ERROR, line, row.why, _hint(new, hint), with_marker(line, new))


def dead_address(context: CheckContext) -> Iterator[Finding]:
    lines: list[Line] = [line for line in context.pip if line.url]
    lines += context.dependencies.options if context.dependencies else ()
    for line in lines:
        # The pattern excludes IPv6 addresses, which are in brackets: DEAD_HOSTS contains none.
        address = re.search(r"https?://[^\s#\[\]]+", line.text)
        host = urlsplit(address[0]).hostname or "" if address else ""
        row = next((row for row in DEAD_HOSTS if re.fullmatch(row.host, host)), None)
        if row is None:
            continue
        wheel = line.wheel if isinstance(line, PipLine) else None
        if isinstance(line, PipLine) and wheel and line.name and line.name.startswith("cntk"):
            new = _cntk(line)
            yield make_finding("dead-address", ERROR, line, row.why, _hint(new, _CNTK_HINT), with_marker(line, new))
        elif isinstance(line, PipLine):
            yield make_finding("dead-address", ERROR, line, row.why, "use the package name and version instead")
        else:
            yield make_finding("dead-address", ERROR, line, row.why, "remove the line", None)


_CNTK_HINT = "the package index has wheels for Python 2.7, 3.5, and 3.6; the GPU build requires CUDA in the image"


def _cntk(line: PipLine) -> str:
    """Return the package that replaces a wheel from cntk.ai.

    The wheels were in the folders CPU-Only, GPU, and GPU-1bit-SGD.
    """
    name = "cntk-gpu" if "/gpu" in (line.url or "").lower() else "cntk"
    version = pinned_version(line)
    is_available = version is not None and not is_older(version, CNTK_FIRST) and not is_older(CNTK_LAST, version)
    return f"{name}=={version if is_available else CNTK_LAST}"


def cntk_versions(context: CheckContext) -> Iterator[Finding]:
    """Find CNTK versions that are too old for the package index, and Python versions without builds of CNTK.

    The index has versions 2.5 to 2.7, for Python 2.7, 3.5, and 3.6.
    """
    for line in context.pip:
        if line.name not in ("cntk", "cntk-gpu") or line.url or line.path:
            continue
        version = pinned_version(line)
        if version is not None and is_older(version, CNTK_FIRST):
            new = f"{line.name}=={CNTK_LAST}"
            message = f"{line.name} {version} is not on the package index; available: {CNTK_FIRST} to {CNTK_LAST}"
            yield make_finding("cntk", ERROR, line, message, _hint(new), with_marker(line, new))
        python_line = context.dependencies.python_line if context.dependencies else None
        if python_line and context.python and context.python not in CNTK_PYTHONS:
            message = (
                f"{line.name} has no build for Python {format_version(context.python)}, only for 2.7, 3.5, and 3.6"
            )
            yield make_finding("cntk", ERROR, python_line, message, _hint("python=3.6"), "python=3.6")


def is_withdrawn(image: str) -> bool:
    return re.split("[:@]", image)[0] in WITHDRAWN


def withdrawn_image(context: CheckContext) -> Iterator[Finding]:
    """Warn about a withdrawn image. It is not an error, because machines may still have a copy."""
    image, line = context.compute.base_docker_image, context.image_line
    if context.contained and image and line and is_withdrawn(image):
        why = f"image {image} was withdrawn by its publisher: only machines that already have it can start it"
        hint = f"use {DEFAULT_IMAGE}, and list the packages of the old image in CondaDependenciesFile"
        yield make_finding("image", WARNING, line, why, hint, DEFAULT_IMAGE)


# -- builds without GPU support ----------------------------------------------------------------------


def cpu_only_pip(context: CheckContext) -> Iterator[Finding]:
    """Find builds without GPU support on a target with GPUs."""
    if not context.has_gpu:
        return
    for line in context.pip:
        replacement = _gpu_replacement(context, line)
        if replacement is not None:
            why, new = replacement
            yield make_finding(
                "cpu-only",
                _severity(context, line),
                line,
                why,
                _hint(new, _no_gpu_hint(context)),
                with_marker(line, new),
            )
    for option in context.dependencies.options if context.dependencies else ():
        if option.value and re.search(r"/whl/cpu(?:/|\Z)", option.value) and _lists_package(context, "torch"):
            why = "this index has only CPU builds of PyTorch"
            hint = _join_hints(
                "remove this line; torch from the default package index supports CUDA", _no_gpu_hint(context)
            )
            yield make_finding("cpu-only", _severity(context, option), option, why, hint, None)


def _no_gpu_hint(context: CheckContext) -> str:
    """Return a hint for scripts that need no GPU.

    Outside containers, ``nvidiaDocker`` has no effect.
    """
    if context.contained:
        return "or set nvidiaDocker: false if the script needs no GPU"
    # Outside containers, only --gpus sets nvidia_docker. A machine that merely has GPUs needs no change.
    return "or omit --gpus if the script needs no GPU" if context.compute.nvidia_docker else ""


def _join_hints(hint: str, other: str) -> str:
    return f"{hint}; {other}" if other else hint


def _gpu_replacement(context: CheckContext, line: PipLine) -> tuple[str, str] | None:
    """Return why a pip package cannot use a GPU, and its replacement. Return None if it can."""
    version = pinned_version(line)
    if line.name == "tensorflow-cpu":
        return "tensorflow-cpu cannot use a GPU", _tensorflow(line, version)
    if line.name == "tensorflow" and version and (is_older(version, "1.15") or version.startswith("2.0")):
        return f"tensorflow {version} cannot use a GPU; tensorflow-gpu can", f"tensorflow-gpu=={version}"
    if line.name == "cntk" and not line.url and not line.path:
        return "cntk cannot use a GPU; cntk-gpu can", f"cntk-gpu{line.specifier}"
    if line.name in ("torch", "torchvision", "torchaudio"):
        local = re.search(r"(\d[\w.]*?)(?:\+|%2[Bb])cpu", line.text)
        if local:
            return f"{line.name} {local[1]}+cpu cannot use a GPU", f"{line.name}=={local[1]}"
    has_plugin = version is None or not is_older(version, JAX_CUDA_FROM)
    if line.name == "jax" and has_plugin and not line.url and not _jax_has_cuda(context):
        return "jax without a CUDA plugin cannot use a GPU", f"jax[{_jax_extra(context)}]{line.specifier}"
    return None


def _tensorflow(line: PipLine, version: str | None) -> str:
    if version is None:
        return f"tensorflow[and-cuda]{line.specifier}"
    if is_older(version, "2.15"):
        return f"tensorflow=={version}" if not is_older(version, "1.15") else f"tensorflow-gpu=={version}"
    return f"tensorflow[and-cuda]=={AND_CUDA_FROM if is_older(version, AND_CUDA_FROM) else version}"


def _jax_has_cuda(context: CheckContext) -> bool:
    for line in context.pip:
        name = line.name or ""
        if re.match(r"jax-cuda\d+-(?:plugin|pjrt)", name) or (name == "jaxlib" and "cuda" in line.text):
            return True
        if name == "jax" and any(re.match(r"cuda|tpu|rocm|k8s", extra) for extra in line.extras):
            return True
    return False


def _jax_extra(context: CheckContext) -> str:
    return "cuda13" if context.driver and driver_supports(context.driver, (13,)) else "cuda12"


def _lists_package(context: CheckContext, *names: str) -> bool:
    return any(line.name in names for line in context.pip)


def _severity(context: CheckContext, line: Line) -> str:
    """Return ERROR if GPUs are requested and no other package in the file could use them."""
    others = [other for other in context.pip if other is not line and _uses_gpu(other)]
    return ERROR if context.compute.nvidia_docker and not others else WARNING


def _uses_gpu(line: PipLine) -> bool:
    name = line.name or ""
    if name == "torch":
        return "cpu" not in line.text
    return name in ("tensorflow-gpu", "cntk-gpu", "cupy") or bool(
        re.search(r"cuda|-cu\d", name + " ".join(line.extras))
    )


def tensorflow_without_cuda(context: CheckContext) -> Iterator[Finding]:
    """Find plain TensorFlow, which relies on the image's CUDA libraries.

    It does not fail if they are missing.
    """
    if not context.has_gpu or re.search(r"cuda|gpu|nvidia|nvcr", context.compute.base_docker_image or ""):
        return
    if any(re.match(r"nvidia-(?:cuda-runtime|cudnn)", line.name or "") for line in context.pip):
        return
    for line in context.pip:
        if line.name != "tensorflow" or "and-cuda" in line.extras or line.url or line.path:
            continue
        version = pinned_version(line)
        recent = admits(line, "99") or not is_older(version or "0", "2.15")
        if recent and (context.python is None or context.python >= (3, 9)):
            exact = f"=={AND_CUDA_FROM}" if version and is_older(version, AND_CUDA_FROM) else line.specifier
            new = f"tensorflow[{','.join(sorted({*line.extras, 'and-cuda'}))}]{exact}"
            why = "tensorflow without and-cuda uses the GPU only if the image or the machine has the CUDA libraries"
            yield make_finding("cuda-missing", WARNING, line, why, _hint(new), with_marker(line, new))


def cpu_only_conda(context: CheckContext) -> Iterator[Finding]:
    if not context.has_gpu or context.dependencies is None:
        return
    for line in context.dependencies.conda:
        build = re.search(r"=(?P<build>[^=\s\]]*cpu[^=\s\]]*)\s*\Z", line.version)
        if line.name in CONDA_CPU:
            other = CONDA_CPU[line.name]
            new = other + line.text.partition(line.name)[2] if other else None
            why = f"{line.name} selects builds without GPU support"
            hint = _hint(new, _no_gpu_hint(context)) if new else _join_hints("remove the line", _no_gpu_hint(context))
            yield make_finding("cpu-only", _severity(context, line), line, why, hint, new)
        elif line.name in CONDA_FRAMEWORKS and build:
            new = line.text.replace(build["build"], "*cuda*")
            why = f"build {build['build']} of {line.name} cannot use a GPU"
            yield make_finding("cpu-only", _severity(context, line), line, why, _hint(new, _no_gpu_hint(context)), new)


# -- Python ------------------------------------------------------------------------------------------


def python_without_source(context: CheckContext) -> Iterator[Finding]:
    line = context.dependencies.python_line if context.dependencies else None
    if context.dependencies is None or line is None or context.python is None:
        return
    python, oldest = context.python, CONDA_FROM.get(context.machine, PIP_FROM)
    # A private channel may have versions that conda-forge lacks.
    private_channels = [name for name in context.dependencies.channels if name not in ("conda-forge", "defaults")]
    supported = None
    if context.dependencies.kind == UV_LOCK and python < UV_PYTHON_FROM:
        supported, why = (
            UV_PYTHON_FROM,
            f"Python {format_version(python)} is not available for a uv.lock: {_uv_versions()}",
        )
    elif context.pip and python < PIP_FROM:
        why = (
            f"cannot install pip packages for Python {format_version(python)}: uv supports"
            f" {format_version(PIP_FROM)} and newer"
        )
        supported, private_channels = PIP_FROM, []
    elif (python < oldest or python[0] != 3) and python not in CONDA_ALSO:
        why = (
            f"Python {format_version(python)} is not available: {_uv_versions()}, conda-forge {_conda_versions(oldest)}"
        )
        supported = CONDA_ALSO[0] if python[0] == 2 else oldest
    elif python[0] == 3 and python[1] > NEWEST_PYTHON[1] + 1:  # the next version may have been released in the meantime
        why = f"Python {format_version(python)} does not exist yet"
        supported = NEWEST_PYTHON
    if supported:
        new = f"python={format_version(supported)}" if isinstance(line, Requirement) else None
        more = "or use conda packages only" if context.pip and python < PIP_FROM else ""
        hint = _hint(new, more) if new else f"use {format_version(supported)} or newer"
        yield make_finding("python", WARNING if private_channels else ERROR, line, why, hint, new or False)


def _uv_versions() -> str:
    return f"uv provides {format_version(UV_PYTHON_FROM)} and newer"


def _conda_versions(oldest: tuple[int, int]) -> str:
    return f"{', '.join(map(format_version, CONDA_ALSO))} and {format_version(oldest)} and newer"


def _hint(new: str | None, more: str = "") -> str:
    text = f"use {new}" if new else "remove the line"
    return f"{text}; {more}" if more else text


# -- the script --------------------------------------------------------------------------------------


def python2_in_script(context: CheckContext) -> Iterator[Finding]:
    """Find Python 2 syntax.

    The script is parsed only if it may contain some, because parsing delays the submission.
    """
    if context.script is not None and may_contain_python2(context.script.text):
        from .python2_rules import python2_syntax  # noqa: PLC0415 - scripts in Python 2 are rare

        yield from python2_syntax(context)


# Each pattern starts with literal characters, which makes searching fast.
_PYTHON2_PATTERNS = (
    r"print(?<!\wprint)\b(?!\s*[(=.)])",
    r"except(?<!\wexcept)\s[^:#\n]*,\s*\w+\s*:",
    r"raise(?<!\wraise)\s+[\w.]+\s*,",
    r"exec(?<!\wexec)\b(?!\s*[(=.)])",
    r"def\s+\w+\s*\([^)]*\(",
    r"lambda\s*\(",
    r"[0-9][lL]\b",
    r"(?<![\w.])0[0-7]",
    r"[uU][rR]['\"]",
)


def may_contain_python2(text: str) -> bool:
    """Return whether the text may contain Python 2 code. If False, it certainly contains none."""
    return any(pattern in text for pattern in ("`", "<>", "\t")) or any(
        re.search(pattern, text) for pattern in _PYTHON2_PATTERNS
    )


# -- secrets -----------------------------------------------------------------------------------------


def password_in_file(context: CheckContext) -> Iterator[Finding]:
    """Find passwords in project files: they would be copied with the project and kept in its version history."""
    dependencies = context.dependencies
    lines: list[Option | PipLine] = [*dependencies.options, *dependencies.pip] if dependencies else []
    for line in lines:
        address = line.value if isinstance(line, Option) else line.url or ""
        password = urlsplit(address).netloc.rpartition("@")[0].partition(":")[2]
        if password and not password.startswith("${"):
            host = urlsplit(address).netloc.rpartition("@")[2]
            hint = f"keep it in ~/.netrc, or use ${{NAME}} instead and run: mlw settings add index-hosts {host}"
            yield make_finding("password", WARNING, line, "the password in this URL is copied with the project", hint)


RULES = (
    Rule("retired", "a package on the index that can no longer be installed", retired, in_locks=True),
    Rule("dead-address", "a URL that no longer works", dead_address),
    Rule("image", "an image that its publisher has withdrawn", withdrawn_image, in_locks=True),
    Rule("cntk", "a CNTK version that does not exist, or not for the pinned Python", cntk_versions),
    Rule("wheel", "a wheel for another operating system or processor", wheel_for_another_machine),
    Rule("wheel-python", "a wheel for another Python version", wheel_for_another_python),
    Rule("cpu-only", "a build without GPU support on a target with GPUs, from pip", cpu_only_pip, in_locks=True),
    Rule("cpu-only", "a build without GPU support on a target with GPUs, from conda", cpu_only_conda),
    Rule("cuda-missing", "TensorFlow without the CUDA libraries", tensorflow_without_cuda),
    Rule("cuda", "a build for a CUDA version that needs a newer driver", cuda_newer_than_driver, in_locks=True),
    Rule("cuda-image", "an image for a CUDA version that needs a newer driver", image_newer_than_driver, in_locks=True),
    Rule("python", "a Python version that neither uv nor conda provides", python_without_source),
    Rule("password", "a password in a file that is copied with the project", password_in_file),
    Rule("python2", "a Python 2 script for an environment with Python 3", python2_in_script, in_locks=True),
)
