"""Commands for a remote login shell: start the agent, or first find Python and install the agent.

A command must work the same in bash, dash, zsh, fish, and tcsh. It is one ``exec`` with plain
arguments, or with one single-quoted argument that contains no quotes, backslashes, exclamation
marks, or line breaks.
"""

from __future__ import annotations

import re
import zlib

_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./+-]+")
NO_PYTHON = "MLW-NO-PYTHON"
NEEDS_BUNDLE = "MLW-NEEDS"
SHELL = "MLW-SHELL"  # the remote login shell has finished its startup files and runs the command
AGENT = "MLW-AGENT"

# Python interpreters that may not be on the PATH of a non-interactive shell.
_PYTHON_CANDIDATES = (
    "python3 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8 python3.14 python3.15 python"
    " /usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python /opt/miniconda3/bin/python"
    " /anaconda/bin/python /opt/anaconda3/bin/python /opt/homebrew/bin/python3 /usr/libexec/platform-python"
    " $HOME/.mlw/tools/python/bin/python3 $HOME/miniconda3/bin/python $HOME/anaconda3/bin/python"
    " $HOME/miniforge3/bin/python $HOME/mambaforge/bin/python $HOME/.pyenv/shims/python3 $HOME/.local/bin/python3"
)

# Runs on the remote machine: requests the bundle unless it is installed and intact, then becomes the agent.
_BOOTSTRAP_SCRIPT = """
import hashlib, json, os, sys, zlib
digest, nonce = sys.argv[2:4]
lib = os.path.join(os.path.expanduser("~"), ".mlw", "lib")
target = os.path.join(lib, digest)
def is_intact():
    hasher = hashlib.sha256()
    names = []
    top = os.path.join(target, "remote")
    for folder, _, files in os.walk(top):
        names += [os.path.relpath(os.path.join(folder, name), top) for name in files]
    names = [name for name in names if name.endswith((".py", ".dist-info/METADATA", ".dist-info/entry_points.txt"))]
    for name in sorted(names):
        with open(os.path.join(top, name), "rb") as file:
            hasher.update(name.encode() + b"\\0" + file.read() + b"\\0")
    return hasher.hexdigest()[:16] == digest
def read(count):
    data = b""
    while len(data) < count:
        part = os.read(0, count - len(data))
        if not part:
            sys.exit(3)
        data += part
    return data
os.umask(0o077)
if not is_intact():
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
        for parent in (lib, os.path.dirname(lib)):
            if os.path.isdir(parent) and not os.listdir(parent):
                os.rmdir(parent)
        raise
    if os.path.isdir(target):
        os.rename(target, os.path.join(lib, ".bad-" + nonce))
    try:
        os.rename(part, target)
    except OSError:
        if not is_intact():
            raise
python = sys.executable
os.environ["MLW_SUPERVISOR"] = "1"
os.execv(python, [python, "-I", "-S", os.path.join(target, "remote", "agent.py"), nonce])
"""


def warm_command(python: str, agent: str, nonce: str) -> str | None:
    """Return the command for a machine with a known Python and agent; None if a path needs quoting."""
    if not _PLAIN_PATH.fullmatch(python) or not _PLAIN_PATH.fullmatch(agent):
        return None
    # Other processes look for this variable in the agent's initial environment, so set it before the start.
    return f"exec env MLW_SUPERVISOR=1 {python} -I -S {agent} {nonce}"


def cold_command(digest: str, nonce: str) -> str:
    """Return the command for a machine about which nothing is known yet."""
    probe = '"$p" -I -S -c "import sys; sys.exit(sys.version_info < (3, 8))" </dev/null >/dev/null 2>&1'
    start = 'exec "$p" -I -S -c "import sys, zlib; exec(zlib.decompress(bytes.fromhex(sys.argv[1])))"'
    script = zlib.compress(_BOOTSTRAP_SCRIPT.encode(), 9).hex()
    shell_script = (
        f"echo; echo {SHELL} {nonce}; "
        f"for p in {_PYTHON_CANDIDATES}; do if {probe}; then {start} {script} {digest} {nonce}; fi; done; "
        f"echo; echo {NO_PYTHON} {nonce}"
    )
    return f"exec sh -c '{shell_script}'"
