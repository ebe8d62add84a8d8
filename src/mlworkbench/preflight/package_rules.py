"""The rules: each looks at a case and says what will not work. Pure; what they know stands in ``tables``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from ..config.keys import DEFAULT_IMAGE
from ..environments.dependencies import UV_LOCK, Line, Option, PipLine, Requirement
from ..remote.shared.cuda_drivers import runs
from .cuda import cuda_newer_than_driver, image_newer_than_driver
from .finding import ERROR, WARNING, Case, Finding, found
from .tables import (
    AND_CUDA_FROM,
    CNTK_FIRST,
    CNTK_LAST,
    CNTK_PYTHONS,
    CONDA_ALSO,
    CONDA_CPU,
    CONDA_FRAMEWORKS,
    CONDA_FROM,
    DEAD,
    JAX_CUDA_FROM,
    LAST_TENSORFLOW_GPU,
    NEWEST_PYTHON,
    PIP_FROM,
    RETIRED,
    UV_PYTHON_FROM,
    WITHDRAWN,
)
from .wheels import wheel_for_another_machine, wheel_for_another_python
from .write import admits, before, dotted, pinned, rewritten

Check = Callable[[Case], Iterator[Finding]]


class Rule(NamedTuple):
    """One thing that goes wrong. ``doc`` is what it looks for, in one sentence."""

    name: str
    doc: str
    check: Check
    in_locks: bool = False  # whether it can be told from a lock, which names packages of all platforms


# -- gone --------------------------------------------------------------------------------------------


def retired(case: Case) -> Iterator[Finding]:
    for line in case.pip:
        for row in RETIRED:
            if line.name != row.name or line.url or line.path:
                continue
            if row.gone and not admits(line, row.gone.removeprefix("==")):
                continue  # an older version, which is still there
            new, hint = row.instead, row.hint
            if row.name == "tensorflow-gpu" and case.python in LAST_TENSORFLOW_GPU:
                new = f"tensorflow-gpu=={LAST_TENSORFLOW_GPU[case.python]}"
                hint = (
                    f"that is the last version for Python {dotted(case.python)} and requires CUDA in the image;"
                    " or pin a newer Python and use tensorflow[and-cuda], which includes CUDA"
                )
            yield found("retired", ERROR, line, row.why, _instead(new, hint), rewritten(line, new))


def dead_address(case: Case) -> Iterator[Finding]:
    lines: list[Line] = [line for line in case.pip if line.url]
    lines += case.dependencies.options if case.dependencies else ()
    for line in lines:
        address = re.search(r"https?://[^\s#\[\]]+", line.text)  # a host in brackets is a number, and none that is dead
        host = urlsplit(address[0]).hostname or "" if address else ""
        row = next((row for row in DEAD if re.fullmatch(row.host, host)), None)
        if row is None:
            continue
        wheel = line.wheel if isinstance(line, PipLine) else None
        if isinstance(line, PipLine) and wheel and line.name and line.name.startswith("cntk"):
            new = _cntk(line)
            yield found("dead-address", ERROR, line, row.why, _instead(new, _CNTK_HINT), rewritten(line, new))
        elif isinstance(line, PipLine):
            yield found("dead-address", ERROR, line, row.why, "use the package name and version instead")
        else:
            yield found("dead-address", ERROR, line, row.why, "remove the line", None)


_CNTK_HINT = "the package index has wheels for Python 2.7, 3.5, and 3.6; the GPU build requires CUDA in the image"


def _cntk(line: PipLine) -> str:
    """The package that a wheel of cntk.ai became. Its folders were CPU-Only, GPU and GPU-1bit-SGD."""
    name = "cntk-gpu" if "/gpu" in (line.url or "").lower() else "cntk"
    version = pinned(line)
    fits = version is not None and not before(version, CNTK_FIRST) and not before(CNTK_LAST, version)
    return f"{name}=={version if fits else CNTK_LAST}"


def cntk_versions(case: Case) -> Iterator[Finding]:
    """CNTK is on the index for few Pythons and from 2.5 on."""
    for line in case.pip:
        if line.name not in ("cntk", "cntk-gpu") or line.url or line.path:
            continue
        version = pinned(line)
        if version is not None and before(version, CNTK_FIRST):
            new = f"{line.name}=={CNTK_LAST}"
            message = f"{line.name} {version} is not on the package index; available: {CNTK_FIRST} to {CNTK_LAST}"
            yield found("cntk", ERROR, line, message, _instead(new), rewritten(line, new))
        at = case.dependencies.python_at if case.dependencies else None
        if at and case.python and case.python not in CNTK_PYTHONS:
            message = f"{line.name} has no build for Python {dotted(case.python)}, only for 2.7, 3.5, and 3.6"
            yield found("cntk", ERROR, at, message, _instead("python=3.6"), "python=3.6")


def is_withdrawn(image: str) -> bool:
    return re.split("[:@]", image)[0] in WITHDRAWN


def withdrawn_image(case: Case) -> Iterator[Finding]:
    """Who pulled it in time has it still, so nobody is stopped."""
    image, at = case.compute.base_docker_image, case.image_at
    if case.contained and image and at and is_withdrawn(image):
        why = f"image {image} was withdrawn by its publisher: only machines that already have it can start it"
        hint = f"use {DEFAULT_IMAGE}, and list the packages of the old image in CondaDependenciesFile"
        yield found("image", WARNING, at, why, hint, DEFAULT_IMAGE)


# -- without a GPU -----------------------------------------------------------------------------------


def cpu_only_pip(case: Case) -> Iterator[Finding]:
    """A build that cannot use a GPU, on a target that has one."""
    if not case.gpu:
        return
    for line in case.pip:
        swapped = _with_gpu(case, line)
        if swapped is not None:
            why, new = swapped
            yield found(
                "cpu-only", _grave(case, line), line, why, _instead(new, _or_no_gpu(case)), rewritten(line, new)
            )
    for option in case.dependencies.options if case.dependencies else ():
        if option.value and re.search(r"/whl/cpu(?:/|\Z)", option.value) and _names(case, "torch"):
            why = "this index has only CPU builds of PyTorch"
            hint = _also("remove this line; torch from the default package index supports CUDA", _or_no_gpu(case))
            yield found("cpu-only", _grave(case, option), option, why, hint, None)


def _or_no_gpu(case: Case) -> str:
    """The other way out, by what counts on the target: without containers it does not read nvidiaDocker."""
    if case.contained:
        return "or set nvidiaDocker: false if the script needs no GPU"
    # Only a request for GPUs sets it there; a machine that merely has some is no reason to change anything.
    return "or omit --gpus if the script needs no GPU" if case.compute.nvidia_docker else ""


def _also(hint: str, other: str) -> str:
    return f"{hint}; {other}" if other else hint


def _with_gpu(case: Case, line: PipLine) -> tuple[str, str] | None:
    """Why a package of pip cannot use a GPU, and the one that can."""
    version = pinned(line)
    if line.name == "tensorflow-cpu":
        return "tensorflow-cpu cannot use a GPU", _tensorflow(line, version)
    if line.name == "tensorflow" and version and (before(version, "1.15") or version.startswith("2.0")):
        return f"tensorflow {version} cannot use a GPU; tensorflow-gpu can", f"tensorflow-gpu=={version}"
    if line.name == "cntk" and not line.url and not line.path:
        return "cntk cannot use a GPU; cntk-gpu can", f"cntk-gpu{line.specifier}"
    if line.name in ("torch", "torchvision", "torchaudio"):
        local = re.search(r"(\d[\w.]*?)(?:\+|%2[Bb])cpu", line.text)
        if local:
            return f"{line.name} {local[1]}+cpu cannot use a GPU", f"{line.name}=={local[1]}"
    has_plugin = version is None or not before(version, JAX_CUDA_FROM)
    if line.name == "jax" and has_plugin and not line.url and not _jax_has_cuda(case):
        return "jax without a CUDA plugin cannot use a GPU", f"jax[{_jax_extra(case)}]{line.specifier}"
    return None


def _tensorflow(line: PipLine, version: str | None) -> str:
    if version is None:
        return f"tensorflow[and-cuda]{line.specifier}"
    if before(version, "2.15"):
        return f"tensorflow=={version}" if not before(version, "1.15") else f"tensorflow-gpu=={version}"
    return f"tensorflow[and-cuda]=={AND_CUDA_FROM if before(version, AND_CUDA_FROM) else version}"


def _jax_has_cuda(case: Case) -> bool:
    for line in case.pip:
        name = line.name or ""
        if re.match(r"jax-cuda\d+-(?:plugin|pjrt)", name) or (name == "jaxlib" and "cuda" in line.text):
            return True
        if name == "jax" and any(re.match(r"cuda|tpu|rocm|k8s", extra) for extra in line.extras):
            return True
    return False


def _jax_extra(case: Case) -> str:
    return "cuda13" if case.driver and runs(case.driver, (13,)) else "cuda12"


def _names(case: Case, *names: str) -> bool:
    return any(line.name in names for line in case.pip)


def _grave(case: Case, line: Line) -> str:
    """A target that was told to hand in GPUs, and nothing in the file that could use them: that is an error."""
    others = [one for one in case.pip if one is not line and _uses_gpu(one)]
    return ERROR if case.compute.nvidia_docker and not others else WARNING


def _uses_gpu(line: PipLine) -> bool:
    name = line.name or ""
    if name == "torch":
        return "cpu" not in line.text
    return name in ("tensorflow-gpu", "cntk-gpu", "cupy") or bool(
        re.search(r"cuda|-cu\d", name + " ".join(line.extras))
    )


def tensorflow_without_cuda(case: Case) -> Iterator[Finding]:
    """TensorFlow's plain package looks for CUDA in the image, and says nothing if it is not there."""
    if not case.gpu or re.search(r"cuda|gpu|nvidia|nvcr", case.compute.base_docker_image or ""):
        return
    if any(re.match(r"nvidia-(?:cuda-runtime|cudnn)", line.name or "") for line in case.pip):
        return
    for line in case.pip:
        if line.name != "tensorflow" or "and-cuda" in line.extras or line.url or line.path:
            continue
        version = pinned(line)
        recent = admits(line, "99") or not before(version or "0", "2.15")
        if recent and (case.python is None or case.python >= (3, 9)):
            exact = f"=={AND_CUDA_FROM}" if version and before(version, AND_CUDA_FROM) else line.specifier
            new = f"tensorflow[{','.join(sorted({*line.extras, 'and-cuda'}))}]{exact}"
            why = "tensorflow without and-cuda uses the GPU only if the image or the machine has the CUDA libraries"
            yield found("cuda-missing", WARNING, line, why, _instead(new), rewritten(line, new))


def cpu_only_conda(case: Case) -> Iterator[Finding]:
    if not case.gpu or case.dependencies is None:
        return
    for line in case.dependencies.conda:
        build = re.search(r"=(?P<build>[^=\s\]]*cpu[^=\s\]]*)\s*\Z", line.version)
        if line.name in CONDA_CPU:
            other = CONDA_CPU[line.name]
            new = other + line.text.partition(line.name)[2] if other else None
            why = f"{line.name} selects builds without GPU support"
            hint = _instead(new, _or_no_gpu(case)) if new else _also("remove the line", _or_no_gpu(case))
            yield found("cpu-only", _grave(case, line), line, why, hint, new)
        elif line.name in CONDA_FRAMEWORKS and build:
            new = line.text.replace(build["build"], "*cuda*")
            why = f"build {build['build']} of {line.name} cannot use a GPU"
            yield found("cpu-only", _grave(case, line), line, why, _instead(new, _or_no_gpu(case)), new)


# -- Python ------------------------------------------------------------------------------------------


def python_without_source(case: Case) -> Iterator[Finding]:
    at = case.dependencies.python_at if case.dependencies else None
    if case.dependencies is None or at is None or case.python is None:
        return
    python, oldest = case.python, CONDA_FROM.get(case.machine, PIP_FROM)
    # A channel of the user's own may have what the public one lacks.
    own = [name for name in case.dependencies.channels if name not in ("conda-forge", "defaults")]
    wanted = None
    if case.dependencies.kind == UV_LOCK and python < UV_PYTHON_FROM:
        wanted, why = UV_PYTHON_FROM, f"Python {dotted(python)} is not available for a uv.lock: {_uv()}"
    elif case.pip and python < PIP_FROM:
        why = f"cannot install pip packages for Python {dotted(python)}: uv supports {dotted(PIP_FROM)} and newer"
        wanted, own = PIP_FROM, []
    elif (python < oldest or python[0] != 3) and python not in CONDA_ALSO:
        why = f"Python {dotted(python)} is not available: {_uv()}, conda-forge {_conda(oldest)}"
        wanted = CONDA_ALSO[0] if python[0] == 2 else oldest
    elif python[0] == 3 and python[1] > NEWEST_PYTHON[1] + 1:  # the next one may be there by now
        why = f"Python {dotted(python)} does not exist yet"
        wanted = NEWEST_PYTHON
    if wanted:
        new = f"python={dotted(wanted)}" if isinstance(at, Requirement) else None
        more = "or use conda packages only" if case.pip and python < PIP_FROM else ""
        hint = _instead(new, more) if new else f"use {dotted(wanted)} or newer"
        yield found("python", WARNING if own else ERROR, at, why, hint, new or False)


def _uv() -> str:
    return f"uv provides {dotted(UV_PYTHON_FROM)} and newer"


def _conda(oldest: tuple[int, int]) -> str:
    return f"{', '.join(map(dotted, CONDA_ALSO))} and {dotted(oldest)} and newer"


def _instead(new: str | None, more: str = "") -> str:
    said = f"use {new}" if new else "remove the line"
    return f"{said}; {more}" if more else said


# -- the script --------------------------------------------------------------------------------------


def python2_in_script(case: Case) -> Iterator[Finding]:
    """Parsed only if there is a sign of it: a submit waits for this."""
    if case.script is not None and signs_of_python2(case.script.text):
        from .python2 import python2_syntax  # noqa: PLC0415 - scripts in Python 2 are rare

        yield from python2_syntax(case)


# Each begins with plain letters, which are searched for fast.
_SIGNS = (
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


def signs_of_python2(text: str) -> bool:
    """Whether a text may hold Python 2; False only if it surely holds none."""
    return any(sign in text for sign in ("`", "<>", "\t")) or any(re.search(sign, text) for sign in _SIGNS)


# -- secrets -----------------------------------------------------------------------------------------


def password_in_file(case: Case) -> Iterator[Finding]:
    """What stands in a file of the project travels with it, and is in every copy of its history."""
    asked = case.dependencies
    lines: list[Option | PipLine] = [*asked.options, *asked.pip] if asked else []
    for line in lines:
        address = line.value if isinstance(line, Option) else line.url or ""
        word = urlsplit(address).netloc.rpartition("@")[0].partition(":")[2]
        if word and not word.startswith("${"):
            host = urlsplit(address).netloc.rpartition("@")[2]
            hint = f"keep it in ~/.netrc, or use ${{NAME}} instead and run: mlw settings add index-hosts {host}"
            yield found("password", WARNING, line, "the password in this URL is copied with the project", hint)


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
