"""What is said to another machine's login shell: start the agent, or else find a Python and bring it the agent.

The words must mean the same in bash, dash, zsh, fish and tcsh: one ``exec`` with plain words, or with one pair of
single quotes without quotes, backslashes, exclamation marks or ends of lines in it.
"""

from __future__ import annotations

import re
import zlib

_PLAIN = re.compile(r"[A-Za-z0-9_./+-]+")
NO_PYTHON = "MLW-NO-PYTHON"
NEEDS = "MLW-NEEDS"
SHELL = "MLW-SHELL"  # the login shell there has run its startup files and runs our command
AGENT = "MLW-AGENT"

# Where a Python may be that no PATH of a shell without terminal names.
_PLACES = (
    "python3 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8 python3.14 python3.15 python"
    " /usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python /opt/miniconda3/bin/python"
    " /anaconda/bin/python /opt/anaconda3/bin/python /opt/homebrew/bin/python3 /usr/libexec/platform-python"
    " $HOME/.mlw/tools/python/bin/python3 $HOME/miniconda3/bin/python $HOME/anaconda3/bin/python"
    " $HOME/miniforge3/bin/python $HOME/mambaforge/bin/python $HOME/.pyenv/shims/python3 $HOME/.local/bin/python3"
)

# Runs on the other machine: look whether the library is there and whole, else ask for it; then become the agent.
_LOADER = """
import hashlib, json, os, sys, zlib
digest, nonce = sys.argv[2:4]
lib = os.path.join(os.path.expanduser("~"), ".mlw", "lib")
place = os.path.join(lib, digest)
def whole():
    made = hashlib.sha256()
    names = []
    top = os.path.join(place, "remote")
    for folder, _, files in os.walk(top):
        names += [os.path.relpath(os.path.join(folder, one), top) for one in files]
    names = [name for name in names if name.endswith((".py", ".dist-info/METADATA", ".dist-info/entry_points.txt"))]
    for name in sorted(names):
        with open(os.path.join(top, name), "rb") as file:
            made.update(name.encode() + b"\\0" + file.read() + b"\\0")
    return made.hexdigest()[:16] == digest
def read(count):
    data = b""
    while len(data) < count:
        part = os.read(0, count - len(data))
        if not part:
            sys.exit(3)
        data += part
    return data
os.umask(0o077)
if not whole():
    os.write(1, ("\\nMLW-NEEDS %s\\n" % nonce).encode())
    files = json.loads(zlib.decompress(read(int(read(8)))))
    part = os.path.join(lib, ".part-" + nonce)
    try:
        for name in files:
            path = os.path.join(part, "remote", *name.split("/"))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(files[name].encode())
                file.flush()
                os.fsync(file.fileno())
    except OSError:
        import shutil
        shutil.rmtree(part, True)
        for made in (lib, os.path.dirname(lib)):
            if os.path.isdir(made) and not os.listdir(made):
                os.rmdir(made)
        raise
    if os.path.isdir(place):
        os.rename(place, os.path.join(lib, ".bad-" + nonce))
    try:
        os.rename(part, place)
    except OSError:
        if not whole():
            raise
python = sys.executable
os.environ["MLW_SUPERVISOR"] = "1"
os.execv(python, [python, "-I", "-S", os.path.join(place, "remote", "agent.py"), nonce])
"""


def warm(python: str, agent: str, nonce: str) -> str | None:
    """For a machine that was met before; None if its paths are not plain words."""
    if not _PLAIN.fullmatch(python) or not _PLAIN.fullmatch(agent):
        return None
    # The mark must be in the environment from the process's beginning: that is where others look for it.
    return f"exec env MLW_SUPERVISOR=1 {python} -I -S {agent} {nonce}"


def cold(digest: str, nonce: str) -> str:
    """For any machine."""
    probe = '"$p" -I -S -c "import sys; sys.exit(sys.version_info < (3, 8))" </dev/null >/dev/null 2>&1'
    start = 'exec "$p" -I -S -c "import sys, zlib; exec(zlib.decompress(bytes.fromhex(sys.argv[1])))"'
    load = zlib.compress(_LOADER.encode(), 9).hex()
    text = (
        f"echo; echo {SHELL} {nonce}; "
        f"for p in {_PLACES}; do if {probe}; then {start} {load} {digest} {nonce}; fi; done; "
        f"echo; echo {NO_PYTHON} {nonce}"
    )
    return f"exec sh -c '{text}'"
