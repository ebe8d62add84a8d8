"""Valid samples of all external input, as well-behaved projects and machines produce it."""

# ruff: noqa: E501 - tables are easier to read with long lines

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import apsw

import mlworkbench
from mlworkbench.remote.tracking.event_file import iterate_records
from mlworkbench.remote.tracking.wandb_file import iterate_records as read_wandb
from tests.unit.history.test_run_state import SPEC

_SAMPLES = Path(mlworkbench.__file__).parent / "samples"
SHA = "0123456789abcdef" * 4

# -- responses of an agent -----------------------------------------------------------------------------

_ENGINE = {
    "program": "docker", "path": "/usr/bin/docker", "version": "28.2.2", "os": "linux", "arch": "amd64", "rootless": False,
    "nvidia": True, "socket": None, "selinux": False, "error": None,
}  # fmt: skip
FACTS: dict[str, Any] = {
    "facts": 1, "time": 1794825208.8, "hostname": "vm", "boot_id": "5e4ddc55",
    "os": {"system": "Linux", "name": "debian", "version": "12", "title": "Debian GNU/Linux 12", "kernel": "6.1",
           "arch": "x86_64", "libc": "glibc 2.36"},
    "python": {"version": "3.11.7", "executable": "/usr/bin/python3"},
    "user": {"name": "ada", "uid": 1000, "gid": 1000, "home": "/home/ada", "home_writable": True, "shell": "/bin/bash"},
    "cpu": {"count": 8, "usable": 4}, "memory": {"total": 25276518400, "available": 23847890944, "limit": 2**33},
    "store": {"folder": "/home/ada/.mlw", "writable": True, "free": 82946871296, "total": 270553174016,
              "inodes_free": 16293115, "filesystem": "ext4", "network": False},
    "nvidia": {"driver": "580.159.04", "smi": "/usr/bin/nvidia-smi", "cdi": False}, "cgroup": 2,
    "docker": _ENGINE, "podman": {**_ENGINE, "program": "podman", "error": "permission denied"},
    "logind": {"running": True, "kill_user_processes": True, "linger": False},
    "script": {"version": "3.11.7", "executable": "/usr/bin/python3"},
    "reach": {"host": "a.example.org", "way": False, "proxy": False, "error": "[Errno 110] timed out"},
}  # fmt: skip
_GPU = {
    "index": 0, "uuid": "GPU-1", "name": "NVIDIA H200", "capability": "9.0", "memory_total": 2**37, "memory_used": 2**30,
    "memory_free": 2**36, "utilisation": 40, "temperature": 40, "power": 100.5, "power_limit": 700.0, "bus_id": "0000:01:00.0",
    "memory_clock": 3000, "error": None, "held": {"user": "ada", "run": "r"},
    "mig": [{"uuid": "MIG-1", "name": "1g", "memory_total": 5, "memory_used": 1}],
    "processes": [{"pid": 5, "memory": 7, "kind": "C", "run": "r", "user": "ada", "name": "python"}],
}  # fmt: skip
GPUS = {"driver": "580.159.04", "cuda": "13.0", "source": "nvml", "problem": None, "gpus": [_GPU]}
_TRIED = [{"what": "cuda", "version": "13.0", "count": 1, "worked": True},
          {"what": "torch", "version": "2.11.0", "cuda": "12.8", "count": 0, "worked": None, "error": "libcuda"}]  # fmt: skip
_DOCTOR = {
    "cards": ["0000:01:00.0"], "driver": "580.159.04", "devices": {"/dev/nvidiactl": True, "/dev/nvidia0": False}, "gpus": GPUS,
    "toolkit": {"tool": "nvidia-ctk", "version": "1.17", "hook": None}, "tried": _TRIED, "container": None,
}  # fmt: skip
_INSIDE = {"image": "i", "missing": False, "code": 0, "devices": ["/dev/nvidia0"], "said": "a\nb", "tried": _TRIED}
_KINDS = {
    name: {"count": 1, "bytes": 5, "free_count": 1, "free_bytes": 4, "kept": {"going": {"count": 1, "bytes": 1}}}
    for name in ("runs", "snapshots", "blobs", "spares", "lib", "envs", "caches")
}
SLURM_FACTS = {
    "version": "22.05.8", "cluster": "hpc", "max_array_size": 1001, "gres": ["gpu"], "accounting": True, "user": "ada",
    "accounts": [{"account": "research", "partition": None, "qos": ["normal"], "default_qos": "normal"}],
    "file_system": "nfs4", "partitions": [{
        "name": "gpu", "default": True, "state": "up", "max_time": 86400, "default_time": 3600, "nodes": 3, "usable": 3,
        "cpus": 8, "memory": 8000, "gpus": [{"model": "h200", "total": 6, "used": 1, "unusable": 0, "per_node": 2}],
    }],
}  # fmt: skip
SCONTROL = [
    b"NodeName=n1 Arch=x86_64 CPUTot=8 Gres=gpu:h200:2(S:0-1),gpu:2 GresUsed=gpu:h200:1(IDX:0) OS=Linux #1 SMP @0"
    b" RealMemory=8000 State=MIXED+DRAIN Partitions=gpu,low CfgTRES=cpu=8,gres/gpu=2 AllocTRES=cpu=1,gres/gpu:h200=1\n",
    b"PartitionName=gpu Default=YES DefaultTime=01:00:00 MaxTime=1-00:00:00 State=UP TotalNodes=3\n",
    b"research||high,low,normal|normal\n",
]
_PACKAGE = {
    "name": "numpy",
    "version": "2.1",
    "build": None,
    "url": f"https://files.example.org/{SHA}/n.whl",
    "sha256": SHA,
}
_ENVIRONMENT = {
    "digest": SHA, "path": "/home/ada/.mlw/envs/x", "python": "3.12.4", "platform": "linux-64", "packages": 5, "built": 1e9,
    "used": 1.5e9, "runs": 2, "going": ["r"], "held": True, "building": False, "size": 100, "own": 50,
    "source": "uv", "home": "/x", "glibc": "2.36", "cuda": "12", "used_by": ["r"], "sound": True, "runs_here": True,
    "damage": ["a"], "conda": [_PACKAGE], "pip": [_PACKAGE, {**_PACKAGE, "git": "https://g.example.org/r", "commit": SHA[:40]}],
}  # fmt: skip
ANSWERS: dict[str, list[Any]] = {
    "hello": [{"ok": True, "protocol": 1, "root": "/home/ada/.mlw", "python": "/usr/bin/python3", "version": [3, 11, 7],
               "uid": 0, "time": 1794825208.8, "identity": {"machine": "3d", "boot_id": "5e", "processes": "pid:[4]"}}],
    "facts": [{"ok": True, "facts": FACTS}],
    "gpus": [{"ok": True, "gpus": GPUS}, {"ok": False, "problem": "no"}],
    "slurm": [
        {"ok": True, "facts": SLURM_FACTS}, {"ok": True, "facts": {"problem": "no-response", "reason": "no controller"}},
        {"ok": True, "runs": {"r": {"state": "queued", "job": "7", "reason": "Resources", "estimated_start": 1.8e9}}},
        {"ok": True, "runs": {"r": {"state": "running", "job": "7", "nodes": ["n1"], "as_of": 1.7e9, "hint": "h"}}},
    ],
    "doctor": [{"ok": True, "found": _DOCTOR}, {"ok": True, "found": {**_DOCTOR, "devices": {}, "container": _INSIDE}}],
    "space": [{"ok": True, "kinds": _KINDS, "removed": _KINDS, "problems": ["x"], "disk_free": 5, "root": "/r"}],
    "survey": [{
        "ok": True, "now": 1794825208.8, "more": False, "replaceable": 5, "other": ["thesis"],
        "clients": [{"id": "1" * 32, "name": "ada@here", "seen": 1794825208.8}, {"id": "2" * 32, "name": "b", "seen": 1.0}],
        "shared": [{"name": "demo-1", "bytes": 5, "changed": 1.0}], "homes": [{"name": "p", "bytes": 5, "changed": 1.0}],
        "runs": [{
            "id": "demo-swift-otter-7k2q", "client": "2" * 32, "project": "demo", "project_id": "p", "created": 1e9,
            "changed": 1e9, "claimed": True, "ended": True, "going": False, "empty": False, "fetched": ["2" * 32], "bytes": 5,
        }],
    }],
    "environments": [{
        "ok": True, "environments": [_ENVIRONMENT], "leftovers": 1, "leftover_bytes": 5, "environment": _ENVIRONMENT,
        "removed": [{"digest": SHA, "bytes": 5}], "others": {"caches": {"count": 1, "bytes": 5}}, "problems": [],
        "kept": [{"name": SHA, "why": "in use", "runs": ["r"], "named": True}],
    }],
    "verbs": [
        {"ok": True, "claimed": True, "protocol": 1, "pid": 5, "owner": {"nonce": "x"}, "state": "adopted", "heartbeat": 1.5e9},
        {"ok": False, "lacks": "packages", "digests": [SHA], "python": True, "problem": "the disk is full"},
        {"ok": True, "state": "ready", "offset": 5, "said": "building\n", "problem": "a; hint: b"},
    ],
    "spark": [{"ok": True, "spark": "3.5.1", "java": "17", "reached": True}, {"problem": "no spark", "unreachable": "refused"}],
    "image": [{"ok": True, "libc": "glibc 2.36"}],
    "upload": [{"ok": True, "more": True, "base": True, "missing": [[0, 2]], "have": [[0, 3]]}],
}  # fmt: skip
STREAMS: list[Any] = [  # each stream is a list of [message, body]
    [[{"more": True, "name": "log"}, "line\n"], [{"more": True, "name": "metrics/1-0"}, '{"n": "loss", "v": 1}\n'],
     [{"more": True, "name": "events.jsonl"}, '{"w": "s", "seq": 1, "t": 1, "kind": "accepted", "data": {}}\n'],
     [{"ok": True, "exists": True, "claimed": True, "supervised": True, "pending": False}, ""]],
    [[{"more": True, "file": 0}, "abc"], [{"more": True, "file": 1, "packed": False}, "de"], [{"ok": True}, ""]],
    [[{"more": True}, "0123456789"], [{"ok": True}, ""]],
]  # fmt: skip

# -- files of a run ------------------------------------------------------------------------------------

_KINDS_OF_EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("accepted", {}), ("step", {"step": "code"}), ("queued", {"reason": "GPU 0 is held"}),
    ("gpus", {"gpus": [{"uuid": "GPU-1", "name": "H200", "index": 0, "memory_total": 5}], "held": True, "driver": "5", "cuda": "1"}),
    ("started", {"time": 1005.0, "pid": 7}),
    ("gpu_idle", {"warning": "idle", "diagnosis": {"cause": "a", "remedy": "b"}}),
    ("spark", {"app": "app-1", "version": "3.5", "master": "local[2]", "deploy": "client", "ui": "http://x", "history": None,
               "events": None, "number": 1}),
    ("spark_progress", {"jobs": {"done": 1, "all": 2}, "stages": {"done": 1}, "tasks": {"done": 5, "failed": 1},
                        "executors": {"active": 1}, "members": [{"id": "1", "host": "h", "cores": 2, "memory": 5}], "ended": True}),
    ("spark_trouble", {"number": 1, "app": "app-1", "what": "stage", "reason": "r", "executor": "1", "host": "h", "stage": 1,
                       "name": "n", "job": 1}),
    ("stopping", {"why": "cancel", "stuck": [5]}), ("collecting", {}),
    ("finished", {"ending": "failed", "exit": 3, "signal": None, "elapsed": 3.5, "ended": 1010.0, "cause": "ValueError: x",
                  "outputs": 2, "output_bytes": 11, "log_size": 5, "leftovers": [6],
                  "gpu": {"used": "partly", "line": "GPU used", "average": 5.5, "diagnosis": {"cause": "a", "remedy": "b"}}}),
]  # fmt: skip
JOURNAL = [
    [{"w": "sup", "seq": n, "t": 1000.0 + n, "kind": kind, "data": data} for n, (kind, data) in enumerate(kinds, 1)]
    for kinds in (_KINDS_OF_EVENTS, _KINDS_OF_EVENTS[:5] + _KINDS_OF_EVENTS[-1:], _KINDS_OF_EVENTS[::-1])
]
_LOGGED: list[Any] = [
    *({"n": "loss", "v": 0.5 * step, "t": 1000.0 + step, "s": step} for step in range(4)),
    {"n": "loss", "v": "NaN", "f": 1, "t": 1009.0, "s": 9}, {"n": "text", "v": "words", "t": 1000.0},
    {"n": "list", "v": [1, 2.5, {"f": "Infinity"}, "x"], "t": 1001.0}, {"n": "map", "v": {"a": 1, "b": {"f": "NaN"}}},
    {"n": "long", "v": "begin", "of": [[], 0, 70000]}, {"n": "long", "v": "rest", "of": [[], 5, 70000]},
    {"k": "param", "d": {"name": "lr", "value": 0.1}, "t": 1000.0}, {"k": "param", "d": {"name": "flag", "value": None}},
    {"k": "tag", "d": {"name": "tag", "value": "v"}}, {"k": "tag", "d": {"name": "tag", "value": None}},
    {"k": "file", "d": {"path": "outputs/a.png", "as": "image", "name": "a", "step": 1}},
    {"k": "dataset", "d": {"name": "d", "digest": "5", "context": "train"}},
    {"k": "row", "d": {"name": "table", "row": {"a": 1, "b": "x"}}, "t": 1003.0},
    {"k": "metric", "d": {"name": "acc", "value": 0.9, "step": 2, "run": "child"}, "t": 1002.0},
    {"k": "child", "d": {"run": "child", "name": "c", "status": "running", "parent": None, "started": 1000.0, "same": True}},
    {"k": "param", "d": {"name": "lr", "value": 1, "run": "child"}}, {"k": "ended", "d": {"run": "child", "status": "failed"}, "t": 1010.0},
]  # fmt: skip
METRICS = [_LOGGED, _LOGGED[:8], _LOGGED[8:]]
_RECORDED = Path(__file__).parents[1] / "unit" / "recorded"
EVENT_RECORDS = [
    record for path in sorted(_RECORDED.glob("*.tfevents.*")) for _, record in iterate_records(path.read_bytes())
]
with ZipFile(_RECORDED / "mlflow-3.17-stores.zip") as _stores:
    MLFLOW_DATABASES = [_stores.read("mlflow.db")]
    MLFLOW_FILES = [_stores.read(name) for name in _stores.namelist() if name.startswith("mlruns/")]
with ZipFile(_RECORDED / "wandb-0.31-offline.zip") as _runs:
    WANDB_FILES = [_runs.read(name) for name in _runs.namelist() if name.endswith("second1.wandb")]
WANDB_RECORDS = [record for _, record in read_wandb(WANDB_FILES[0][7:], 7)]
TRACKED: list[Any] = [
    [{"k": "source", "d": {"number": 0, "name": "runs/a/x.tfevents.1", "prefix": ""}, "t": 1.0},
     {"k": "series", "d": {"number": 0, "kind": "metric", "tag": "loss", "name": "loss"}, "t": 1.0},
     {"k": "kept", "d": {"number": 0, "kind": "histograms", "tag": "weights"}, "t": 1.0},
     {"k": "file", "d": {"path": "images/x-1.png", "as": "image", "name": "x", "step": 1, "size": 70}, "t": 1.0},
     {"n": "loss", "v": 0.5, "t": 1.0, "s": 1, "o": [0, 40, 0]}, {"k": "position", "t": 1.0, "o": [0, 90, -1]}],
]  # fmt: skip
PRINTED = [
    b"loss: 0.5, acc: 0.9\nepoch 3 - loss: 0.5\nINFO: 42\n{'loss': 0.5, 'epoch': 1.0}\nNov 15 12:30\n",
    "\r 50%|█ | 5/9 [00:01<00:01,  4.90it/s, loss=0.3]\rEpoch 1: 100%|█| 9/9 [00:02<00:00, 4.9it/s, loss=0.3, a=1]\n".encode(),
    "1/2 ━━━ 0s 2ms/step - loss: 0.9\n2/2 ━━━ 0s 2ms/step - loss: 0.3 - val_loss: nan\n{'a': np.float64(1e-3), 'b': '2'}\n".encode(),
]
MANIFESTS: list[Any] = [
    {"outputs": []},
    {"outputs": [{"path": "a", "size": 3, "sha256": SHA, "kind": "file"},
                 {"path": "d/b", "size": 5, "sha256": None, "kind": "not hashed"},
                 {"path": "d/c", "size": 5, "sha256": SHA, "kind": "changed while read"},
                 {"path": "l", "size": 0, "sha256": None, "kind": "link", "to": "d/b"},
                 {"path": "p", "size": 0, "sha256": None, "kind": "fifo"}]},
]  # fmt: skip
NOTES = [{"demo": {"name": "n", "note": "words", "tags": ["a", "b"], "untagged": ["c"], "archived": True},
          "demo.child": {"name": None, "note": None, "tags": [], "untagged": [], "archived": False}}]  # fmt: skip
_SAMPLE = {
    "t": 1.5,
    "gpus": [{"uuid": "GPU-1", "utilisation": 50, "own": 5, "memory": 9, "power": 99.5, "temperature": 40}],
}
_PACKAGE = {"name": "six", "version": "1.16.0", "url": "https://x.example/six-1.16.0.whl", "sha256": SHA, "size": 9}
_CONDA = {"build": "0", "build_number": 0, "subdir": "noarch", "depends": ["python"], "file": "six-1.conda"}
_BASE = {"kind": "managed", "format": 1, "platform": "linux-64", "glibc": "2.28", "cuda": None, "digest": SHA}
LOCKS = [
    {
        **_BASE,
        "python": {"source": "uv", "version": "3.12.1", "key": "cpython-3.12.1", "url": "https://x.example/p.tar.gz"},
        "conda": [],
        "pip": [_PACKAGE, {"name": "b", "version": None, "git": "https://x.example/b", "commit": "a" * 40}],
    },
    {**_BASE, "python": {"source": "conda", "version": "3.12.1"}, "conda": [{**_PACKAGE, **_CONDA}], "pip": []},
    {**_BASE, "python": {"source": "host", "version": "3.12.1", "path": "/bin/python"}, "conda": [], "pip": []},
]
TELEMETRY = [[_SAMPLE, {"t": 2.5, "cores": 1.5, "memory": 2**30, "counted": "pss", "processes": 2}] * 3]

# -- files of a project --------------------------------------------------------------------------------

COMPUTE: list[Any] = [
    {
        "type": "remotedocker",
        "address": "a",
        "username": "u",
        "port": 22,
        "baseDockerImage": "x",
        "nvidiaDocker": True,
        "mounts": ["/data:/data:ro"],
        "shmSize": "1g",
        "cpus": 2,
        "memory": "4g",
        "network": "bridge",
        "dockerOptions": [],
    },  # fmt: skip
    b"type: local\npythonLocation: python3\nuserManagedEnvironment: true\n",
    b"type: remotedocker\naddress: gpu1.example.org\nusername: ada\nport: 2222\nbaseDockerImage: python:3.12\n"
    b"nvidiaDocker: true\nsharedVolumes: true\nnativeSharedDirectory: ~/share/\nmounts:\n  - /data:/data\n",
    b'{"type": "docker", "baseDockerImage": "x", "network": "host"}',
    b"type: cluster\naddress: c.example.org\nusername: u\nsparkMaster: spark://h:7077\n",
]
RUNCONFIG: list[Any] = [
    {
        "Target": "local",
        "Framework": "Python",
        "ArgumentVector": ["train.py", "--lr", 0.1],
        "EnvironmentVariables": {"A": "b"},
        "PrepareEnvironment": True,
        "FetchOutputs": "500 MB",
        "Gpus": 1,
        "PassEnvironment": ["default", "DATA_FOLDER"],
        "Keep": ["wandb/", "a/b"],
        "DataSourceSettings": {"a": {"b": 1}},
        "UseSampling": False,
    },  # fmt: skip
    b"Target: local\nFramework: Python\nArgumentVector:\n  - train.py\n  - --lr=0.1\nCondaDependenciesFile: a.yml\n"
    b"EnvironmentVariables:\n  A: b\nPrepareEnvironment: true\nTrackedRun: true\nFetchOutputs: 500 MB\nGpus: 2\n",
    b"ArgumentVector: [train.py, 1]\nFramework: PySpark\nSparkDependenciesFile: spark.yml\nMetricsFromLog: true\n",
    b'{"Target": "docker", "UseSampling": true}',
]
_YML = sorted(_SAMPLES.glob("*/aml_config/*.yml")) + sorted(_SAMPLES.glob("shared/**/*.yml"))
_CONDA_TREE: Any = {
    "name": "e", "channels": ["conda-forge"], "dependencies": ["python=3.12", "numpy", {"pip": ["torch", "-r other.txt"]}],
}  # fmt: skip
CONDA: list[Any] = (
    [_CONDA_TREE]
    + [path.read_bytes() for path in _YML if "spark" not in path.name][:6]
    + [
        b"name: e\nchannels:\n  - conda-forge\n  - defaults\ndependencies:\n  - python=3.5.2\n  - numpy>=1.2,<2\n  - conda-forge::scipy\n"
        b"  - 'pytorch[version=2.*,build=*cuda*]'\n  - pip:\n    - torch==2.1 ; sys_platform == 'linux'\n    - -r other.txt\n"
        b"    - https://x.example.org/a-1-py3-none-any.whl\n    - --extra-index-url https://u:p@i.example.org/simple\n",
    ]
)
SPARK = [b"configuration:\n  spark.app.name: a\nrepositories:\n  - https://r.example.org\npackages:\n"
         b"  - group: com.x\n    artifact: a\n    version: 1.0\n"]  # fmt: skip
REQUIREMENTS = [
    b"numpy==1.26.4 --hash=sha256:"
    + SHA.encode()
    + b"\ntorch[cuda]>=2.1,<3 ; python_version >= '3.9'\n-r other.txt\n-c other.txt\n"
    b"# words\npandas~=2.0 \\\n  --hash=sha256:"
    + SHA.encode()
    + b"\n./wheels/a-1-py3-none-any.whl\nb @ git+https://g.example.org/b@main\n"
    b"--index-url https://i.example.org/simple\n--extra-index-url https://u:${P}@j.example.org\n--find-links wheels\n--pre\n",
    b"scikit-learn\nwheels/x-1-py3-none-any.whl\n--no-index\n",
]
UV_LOCK = [
    b'version = 1\nrequires-python = ">=3.10"\n\n[[package]]\nname = "numpy"\nversion = "2.1.0"\n'
    b'source = { registry = "https://i.example.org/simple" }\nwheels = [\n  { url = "https://x/n.whl", hash = "sha256:'
    + SHA.encode() + b'", size = 5 },\n]\n\n[[package]]\nname = "demo"\nversion = "0.1"\nsource = { virtual = "." }\n'
]  # fmt: skip
PYPROJECT = [
    b'[project]\nname = "demo"\nversion = "0.1"\nrequires-python = ">=3.10"\ndependencies = ["numpy>=2", "torch==2.1"]\n\n'
    b'[tool.uv]\nindex-url = "https://i.example.org/simple"\n[[tool.uv.index]]\nname = "x"\nurl = "https://j.example.org"\ndefault = true\n'
]
PIXI_LOCK = [
    b"version: 6\nenvironments:\n  default:\n    channels:\n    - url: https://c.example.org/conda-forge/\n    packages:\n      linux-64:\n"
    b"      - conda: https://c.example.org/conda-forge/linux-64/python-3.12.4-h194c7f8_0_cpython.conda\npackages:\n"
    b"- conda: https://c.example.org/conda-forge/linux-64/python-3.12.4-h194c7f8_0_cpython.conda\n  sha256: " + SHA.encode()
    + b"\n- conda: https://c.example.org/conda-forge/noarch/tzdata-2024a-0.tar.bz2\n"
    b"- pypi: https://f.example.org/numpy-2.1.0-cp312-cp312-linux_x86_64.whl\n  name: numpy\n  version: 2.1.0\n"
]  # fmt: skip
IGNORE = [b"# words\n*.pyc\n/data/**\n!data/keep.csv\nbuild/\n[a-z]*.txt\n\\#x\na/**/b\n**/c\n?[!x-z].[[:alpha:]]\n"]
SCRIPTS = [b"import os\nprint 'x', 1\ntry:\n    raise ValueError, 'x'\nexcept IOError, e:\n    print >>f, e\nexec 'x'\n`a`\n1 <> 2\n",
           b"import tensorflow as tf\nprint(tf.__version__)\nfor x in range(3):\n\tprint(x)\n"]  # fmt: skip
PROJECT = [{"Name": "demo", "Id": "5e4ddc55-83ac-41b0-93a3-246f173d5c32", "Scope": "/x", "Description": "words"}]
ATTACHMENT = [{
    "identity": "ada@far:22", "address": "far", "username": "ada", "port": 22, "jump": None, "key": "own", "password": False,
    "root": "/home/ada/.mlw", "python": "/usr/bin/python3", "host_key": "SHA256:x", "allowed_mounts": ["/data"],
    "projects": [["/p", "far"]], "linger": False, "facts": FACTS,
}]  # fmt: skip

_FOREIGN = {
    **SPEC.to_json(), "client": "2" * 32, "tags": ["best"], "user": "ada",
    "sweep": {"way": "grid", "axes": {"lr": "0.1,0.2"}, "children": ["demo-a"], "parallel": 1, "metric": "loss",
              "goal": "min", "seed": None},
}  # fmt: skip
FOREIGN: list[Any] = [_FOREIGN, {**_FOREIGN, "sweep": None, "parent": "demo-parent", "varied": {"lr": "0.1"}}]

SLURM_OUTPUT = [
    b"14|RUNNING|None|2026-11-19T13:15:01|2026-11-19T14:15:01|n[3-7,09]|r|mlw r 2e62b4\n"
    b"19|PENDING|JobHeldUser|N/A|N/A||r|mlw r 2e62b4\n20|CANCELLED|None|N/A|2026-11-19T14:15:01|(null)|r|mlw r 0\n",
    b"3|REQUEUED|0:0|2026-11-19T12:57:28|2026-11-19T12:57:31|n1|r\n3|CANCELLED by 21001|0:0|Unknown|Unknown|n1|r\n"
    b"8|OUT_OF_MEMORY|0:125|2026-11-19T12:58:18|2026-11-19T12:58:21|n2|r\n9|FAILED|1:0|||n2|r\n",
    b'loading\nslurmstepd-n1: error: *** JOB 3 ON n1 CANCELLED AT 2026-11-19T12:57:31 DUE TO TIME LIMIT ***\n{"ok": true}\n',
]
_SLURM_ROW = {
    **{"job": "14", "state": "RUNNING", "reason": "None", "start": "2026-11-19T13:15:01", "end": "N/A"},
    **{"nodes": "n[1-2]", "label": "r|mlw r 0"},
}
SLURM_FILES = [
    {
        "comment": "mlw r 0",
        "time": 1795093978.72,
        "job": "14",
        "submitted": 1795093978.81,
        "missing_since": 1795093979.0,
    },
    {"rows": {"14": _SLURM_ROW}, "asked_at": 1795093978.0, "error": "squeue: timed out", "pause": 2.0, "next": 1.0},
]
RANKS = [
    {"rank": 2, "host": "gpu1", "started": 1.5, "pid": 4711, "code": 1, "signal": None, "ended": 3.5, "printed": 3.25,
     "terminated": 3.75, "stderr": "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\nE: x\n"},
    {"rank": 0, "code": None, "signal": 15, "ended": 4, "terminated": 3.9},
]  # fmt: skip

# -- MLflow ------------------------------------------------------------------------------------------------------------

_SPAN = {"name": "ask", "context": {"span_id": "1"}, "parent_id": None, "start_time": 10**18, "end_time": 10**18 + 5}
_ATTRIBUTES = {"mlflow.spanType": '"LLM"', "mlflow.spanInputs": '{"q": 1}', "mlflow.chat.tokenUsage": "{}"}
TRACE_FILES = [{"spans": [_SPAN, {**_SPAN, "parent_id": "1", "attributes": _ATTRIBUTES, "status": {"code": "OK"}}]}]
MLFLOW_RECORDS = [
    [
        {"k": "dataset", "d": {"name": "iris", "digest": "d", "source": '{"url": "x"}', "profile": '{"num_rows": 3}'}},
        {"k": "dataset", "d": {"name": "a", "schema": '{"mlflow_colspec": [{}]}', "context": "eval", "source": "a"}},
        {"k": "model", "d": {"id": "m-1", "name": "net", "path": "net", "type": "torch", "status": "READY"}},
        {"k": "model_metric", "d": {"model": "m-1", "name": "acc", "value": 0.5, "step": 1, "dataset": "iris"}},
    ],
    [{"k": "packages", "d": {"python": "3.11.2", "packages": [["numpy", "2.0"], ["torch", "2.13"]]}}],
]
TABLES: list[Any] = [
    {"columns": ["x", "y"], "data": [[1, "a"], [None, [1.5]]]},
    {"columns": ["step", "min", "max"], "data": [[1, 0, 2.5], [2, -1, 1]], "buckets": [[1, 0, 3], [2]]},
    {"columns": ["step", "threshold", "recall", "precision"], "data": [[1, 0, 1, 0.5], [1, 1, 0.5, 1]]},
]


def mlflow_database() -> bytes:
    """Return a small database with a trace, its span, and a registered model."""
    return _database(
        ("trace_info", "request_id, experiment_id, timestamp_ms, execution_time_ms, status", ("tr-1", 0, 5, 6, "OK")),
        ("trace_tags", "request_id, key, value", ("tr-1", "mlflow.traceName", "ask")),
        ("trace_request_metadata", "request_id, key, value", ("tr-1", "mlflow.trace.tokenUsage", "{}")),
        ("spans", "trace_id, span_id, name, start_time_unix_nano, content", ("tr-1", "a", "ask", 7, "{}")),
        ("model_versions", "name, version, source, run_id", ("net", 1, "models:/m-1", "r")),
        ("registered_model_aliases", "name, version, alias", ("net", 1, "best")),
    )


def script_database() -> bytes:
    """Return a small database of a script with a run, its dataset, a logged model, and a trace."""
    run = ("r", "a", "FINISHED", 5000, 6000, "active", "file:///x/run/work/outputs/a")
    return _database(
        ("alembic_version", "version_num", ("1",)),
        ("runs", "run_uuid, name, status, start_time, end_time, lifecycle_stage, artifact_uri", run),
        ("params", "key, value, run_uuid", ("lr", "1", "r")),
        ("tags", "key, value, run_uuid", ("team", "vision", "r")),
        ("metrics", "key, value, timestamp, run_uuid, step, is_nan", ("loss", 0.5, 5001, "r", 1, 0)),
        (
            "inputs",
            "input_uuid, source_type, source_id, destination_type, destination_id",
            ("i", "DATASET", "d", "RUN", "r"),
        ),
        ("input_tags", "input_uuid, name, value", ("i", "mlflow.data.context", "train")),
        (
            "datasets",
            "dataset_uuid, name, digest, dataset_source_type, dataset_source, dataset_schema, dataset_profile",
            ("d", "iris", "5f", "local", "{}", "{}", "{}"),
        ),
        (
            "logged_models",
            "model_id, name, artifact_location, creation_timestamp_ms, status, lifecycle_stage, model_type, source_run_id",
            ("m", "net", "file:///x/run/work/outputs/m", 5002, 2, "active", "agent", "r"),
        ),
        ("logged_model_params", "model_id, param_key, param_value", ("m", "depth", "3")),
        ("logged_model_tags", "model_id, tag_key, tag_value", ("m", "kind", "cnn")),
        (
            "logged_model_metrics",
            "model_id, metric_name, metric_timestamp_ms, metric_step, metric_value, run_id, dataset_name, dataset_digest",
            ("m", "acc", 5003, 1, 0.5, "r", None, None),
        ),
        ("trace_info", "request_id, timestamp_ms", ("tr-1", 5004)),
    )


def _database(*tables: tuple[str, str, tuple[object, ...]]) -> bytes:
    connection = apsw.Connection(":memory:")
    connection.execute("PRAGMA page_size = 512")
    for table, columns, row in tables:
        connection.execute(f"CREATE TABLE {table} ({columns})")
        connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    return connection.serialize("main")
