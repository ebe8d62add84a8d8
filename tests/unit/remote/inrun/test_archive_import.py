"""The in-run library as an archive, which is how executors on other machines get it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mlworkbench import remote
from mlworkbench.remote.inrun.mlworkbench._spark.modules import pack_modules


def test_library_is_imported_from_an_archive(tmp_path):
    archive = tmp_path / "modules.zip"
    (tmp_path / "project").mkdir()
    pack_modules(str(archive), str(tmp_path / "project"), str(Path(remote.__file__).parent / "inrun"))
    program = f"import sys; sys.path.insert(0, {str(archive)!r}); import mlworkbench; print(mlworkbench.__file__)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, f"{archive}/mlworkbench/__init__.py"), done.stderr
