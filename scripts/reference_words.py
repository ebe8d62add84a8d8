"""Texts of docs/reference that are not in the code; reference_pages.py checks that they match the code exactly."""

from __future__ import annotations

from mlworkbench import errors
from mlworkbench.remote.shared import run_endings

COMMANDS = """
This page lists all commands and their options, as does `mlw COMMAND --help`. Most commands accept these options:

| option | meaning |
| --- | --- |
| `--project PATH` | Project folder (default: the current directory) |
| `--debug` | Show tracebacks |
| `--no-color` | Disable colors |
| `-o`, `--output` `table`, `json`, `jsonc`, or `tsv` | Output format |
| `--query JMESPATH` | Filter the result with a JMESPath expression |
| `-h`, `--help` | Show help for the command |

To specify a run, use its ID, any unique part of the ID, or its name. Commands and options of earlier versions still work and print a hint.
"""

TROUBLE = """
Every error message has a description (`error:`) and a suggestion (`hint:`). Some hints refer to a section of this page: `for details run 'mlw explain NAME'`. This command needs no network access. `mlw explain` lists all sections by topic, and
`mlw explain No module named torch` finds the section for that message. On this page, `…` stands for names and numbers.

Start with these commands:

| command | shows |
| --- | --- |
| `mlw show RUN` | status, cause, GPU use, children, and files of a run |
| `mlw logs RUN` | the script's output |
| `mlw doctor` | problems on this machine |
| `mlw project validate`, `mlw project doctor` | problems in the project's files |
| `mlw computetarget check NAME` | what is missing on the target, and how to fix it |
| `mlw doctor gpu -t NAME` | each step from the GPU driver to the framework |
| `mlw experiment diagnostics RUN` | a zip file with all data of a run; secrets are masked |
| any command with `--debug` | the traceback of an error |
"""

SHORT = {
    "submit": "experiment submit",
    "logs": "experiment logs",
    "ps": "experiment ps",
    "show": "history show",
    "cancel": "experiment cancel",
    "status": "experiment status",
}

ENDINGS = {
    run_endings.SUCCEEDED: "The script returned 0.",
    run_endings.FAILED: "The script returned a nonzero exit code (`failed (exit 3)`), or a signal ended it (`failed (signal 15)`). The cause contains the exception and the line in your code.",
    run_endings.OUT_OF_MEMORY: "The kernel killed the script, or a child process in its container, because memory ran out. The script itself may still have returned 0, but its results may be incomplete.",
    run_endings.TIMEOUT: "The run reached its `--timeout`, or the time limit of its Slurm job, and was stopped.",
    run_endings.CANCELLED: "The run was canceled. It stopped after SIGTERM, or had not started.",
    run_endings.CANCELLED_FORCED: "The run was canceled. It did not stop after SIGTERM within the grace period, so it was killed.",
    run_endings.ENVIRONMENT_FAILED: "The packages could not be installed. The script did not start. `build.log` contains the details.",
    run_endings.COULD_NOT_START: "An image, a program, or a GPU was missing on the machine. The script did not start.",
    run_endings.TARGET_REBOOTED: "The machine was rebooted during the run.",
    run_endings.TARGET_RESTARTED: "The target is a container (a rented pod) and was restarted during the run.",
    run_endings.TARGET_LOST: "The run folder on the machine was deleted, or you ended the run with `mlw cancel --forget`.",
    run_endings.ENGINE_STOPPED: "The container engine or a user stopped the container.",
    run_endings.NODE_FAILURE: "A node of the Slurm job failed, and the run does not continue on another one.",
    run_endings.PREEMPTED: "Slurm ended the job for one with a higher priority, and the run does not continue.",
    run_endings.REQUEUED: "Slurm requeued the job. This is the ending of an attempt; the next attempt follows.",
    run_endings.EXIT_UNKNOWN: "The process has ended, but no exit status was recorded. The cause gives the reason. The log and outputs may be complete.",
}

ENDINGS_TEXT = """
The ending describes how a run ended. `mlw show RUN` prints it, and JSON output contains it in the key `ending`. It is more specific than the status. The supervisor on the target determines it from the exit code, the signal, cancel requests, and kernel
counters.
"""

EXIT_TEXT = """
`mlw submit` and `mlw logs -f` exit with the script's exit code. For its own failures, mlw uses codes that scripts rarely use.
"""

OF_RUNS = (
    ("0", "Success; for a run: the script returned 0"),
    (
        "1–125",
        "For a run: the script's exit code. For other commands, 1 means that a check found errors (`doctor`, `project validate`, `project doctor`), or that some files could not be copied or sent",
    ),
    ("128 + *n*", "For a run: signal *n* ended the script; 137 is SIGKILL, and 139 is a segmentation fault"),
    (str(errors.EXIT_TIMEOUT), "For a run: the run reached its time limit"),
    ("143", "For a run: the run was canceled"),
    (str(errors.EXIT_DETACHED), "You pressed Ctrl-C. The run continues"),
)

EVENTS = {
    "accepted": (
        "A supervisor accepted the run",
        "`machine`, `boot_id`, `processes`: identity of the machine, boot, and process table; `protocol`; `pid`; `root`: ID of the root folder; in a Slurm job, `job` and `restart`: its ID, and how often Slurm restarted it",
    ),
    "step": (
        "A preparation step began",
        "`step`: `code` (with `snapshot`), `environment` (with `digest`), or `image` (with `image`, the image that is being pulled)",
    ),
    "queued": ("The run is waiting for GPUs; repeated when the reason changes", "`reason`, as text"),
    "gpus": (
        "The GPUs that the run holds or can see",
        "`gpus`: a list of `index`, `uuid`, `name`, `capability`, `bus_id`, `memory_clock`, `memory_total`, `memory_free`; `driver`; `cuda`; `held`: whether the run has exclusive use; `asked`",
    ),
    "gpu_idle": (
        "The run requested GPUs and has not used them for a while, or its processes make no progress",
        "`warning`, or null if it no longer applies; `diagnosis`: `cause`, `remedy`, `explain`",
    ),
    "started": ("The script started", "`pid`; `time` of the start"),
    "spark": (
        "A Spark application was found",
        "`app`, `version`, `master`, `deploy`, `ui`, `history`, `events`, `number`",
    ),
    "spark_progress": (
        "Progress of a Spark application",
        "`jobs`, `stages`, `tasks`, `executors`: names and counts; `members`: the executors; `ended`",
    ),
    "spark_trouble": (
        "An executor was lost, or a task or stage failed",
        "`number`, `app`, `what`, `reason`, `executor`, `host`, `stage`, `name`, `job`",
    ),
    "stopping": (
        "A signal is sent to the script",
        "`why`: `cancel` or `timeout`; `grace`: grace period in seconds; `stuck`: processes that ignore SIGKILL",
    ),
    "attempt_ended": (
        "An attempt ended, and another one follows",
        "`attempt`: its number; `delay`: seconds until the next attempt; `ending`, `cause`, `failure`, `exit`, `signal`, `ended`, `elapsed`, `log_size`, `gpu`, and `ranks`, as in `finished`",
    ),
    "collecting": (
        "The script ended; the supervisor lists its outputs",
        "`ending`, `cause`, `failure`, `exit`, `signal`, `ended`, `elapsed`, `log_size`, and `ranks`, as in `finished`",
    ),
    "finished": (
        "The run ended. This is the last event",
        "`ending` ([values](endings.md)), `cause` as one text, `failure`: the same as [data](machine-readable-output.md#failures-of-runs), null for a run that succeeded; `exit`, `signal`, `ended`, `elapsed` in seconds, `outputs`, `output_bytes`, `log_size`, `leftovers`: processes that are still running; `left_out`: metrics and outputs that were skipped, and why; `unkept`: files and folders that the script created outside of `outputs/`; `gpu`: the verdict; `ranks`, if the run has a launcher: a list of `[rank, host, pid, code, signal]`, with null for unknown values",
    ),
}

EVENTS_TEXT = """
The file `events.jsonl` in the run folder is the event journal: one JSON object per line. The supervisor only appends to it. mlw computes the state of a run only from these events.

```json
{"w": "sup", "seq": 3, "t": 1794793719.808, "kind": "started", "data": {"pid": 13097, "time": 1794793719.801}}
```

`w` is the writer, `seq` is the writer's line number, `t` is the time on the target (seconds since 1970), and `kind` is one of the values below. Readers ignore unknown kinds and fields. If the last line is incomplete, it is still
being written.
"""

READ = (
    (
        "MLW_HOME",
        "Data folder with history, keys, and caches (default on Linux: `~/.local/share/mlworkbench`, or under `XDG_DATA_HOME`). Other users must not have access",
    ),
    ("MLW_DEBUG", "Any value: show tracebacks, as with `--debug`"),
    (
        "MLW_ERROR_FORMAT",
        "`json`: print errors as JSON, as with `-o json`; see [machine-readable output](machine-readable-output.md)",
    ),
    ("MLW_TRACKING", "`off`: scripts record nothing"),
    (
        "MLW_REGISTRY_PASSWORD",
        "Password of a private registry; used only if `MLW_REGISTRY_SERVER` is the image's registry server",
    ),
    ("MLW_REGISTRY_SERVER", "Server of the private registry; see `MLW_REGISTRY_PASSWORD`"),
    (
        "MLW_SECRET_",
        "Prefix: `MLW_SECRET_TOKEN` contains the value for `--secret TOKEN` and takes precedence over `TOKEN`",
    ),
    ("NO_COLOR", "Any value: no colors"),
    ("COLUMNS", "Width of tables"),
    ("XDG_RUNTIME_DIR", "Folder for the sockets of shared SSH connections"),
    ("SSH_AUTH_SOCK", "Socket of your SSH agent, as used by ssh"),
    ("DOCKER_HOST", "Container engine for `docker` targets on this machine"),
    (
        "UV_INDEX_URL",
        "Package index. Other uv settings (`UV_DEFAULT_INDEX`, `UV_EXTRA_INDEX_URL`, `UV_FIND_LINKS`, …) also apply and take precedence over pip settings",
    ),
    (
        "PIP_CONFIG_FILE",
        "pip configuration file. `PIP_INDEX_URL`, `PIP_EXTRA_INDEX_URL`, `PIP_FIND_LINKS`, and `PIP_NO_INDEX` also apply",
    ),
    (
        "UV_PYTHON_DOWNLOADS_JSON_URL",
        "URL of uv's list of Python downloads, for a mirror; also used for targets",
    ),
    ("UV_PYTHON_INSTALL_MIRROR", "Mirror for uv's Python downloads, on this machine and on targets"),
    (
        "NETRC",
        "File with credentials for package indexes; used for HTTPS URLs and for URLs that you configured (default: `~/.netrc`)",
    ),
    (
        "MLFLOW_TRACKING_USERNAME",
        "User name for `history export --mlflow`. Also set `MLFLOW_TRACKING_PASSWORD`, or set only `MLFLOW_TRACKING_TOKEN`. Certificates: `MLFLOW_TRACKING_SERVER_CERT_PATH`, `MLFLOW_TRACKING_CLIENT_CERT_PATH`, `MLFLOW_TRACKING_INSECURE_TLS`. Timeout: `MLFLOW_HTTP_REQUEST_TIMEOUT`",
    ),
)

GIVEN = (
    ("MLW_RUN_ID", "Run ID"),
    ("MLW_RUN_FOLDER", "Run folder on the target"),
    ("MLW_CHECKPOINTS", "Folder for [checkpoints](../how-to/retries.md), shared by all attempts"),
    ("MLW_ATTEMPT", "Number of the attempt, starting with 1"),
    (
        "AZUREML_NATIVE_SHARE_DIRECTORY",
        "Shared folder of the project, which mlw keeps after runs; ends with a path separator",
    ),
    ("MLFLOW_TRACKING_URI", "`mlw:run`, so that MLflow logs to the run. A value that you set takes precedence"),
    ("PYTHONPATH", "Starts with the in-run library, followed by your value"),
    ("PYTHONUNBUFFERED", "`1`, so that output appears immediately. A value that you set takes precedence"),
    ("CUDA_VISIBLE_DEVICES", "UUIDs of the GPUs that the run holds; empty with `--gpus none`"),
    ("CUDA_DEVICE_ORDER", "`PCI_BUS_ID` if the run holds GPUs"),
    (
        "VIRTUAL_ENV",
        "The environment, if mlw created it (`CONDA_PREFIX` for conda environments); `PYTHONNOUSERSITE` is then `1`",
    ),
    ("MLW_TRACKING", "`off` if the run configuration contains `TrackedRun: false`"),
)

PYTHON_TEXT = """
## In a script

`import mlworkbench` works in every run with Python 3.6 or newer; nothing needs to be installed. If you start a script without mlw, install `mlworkbench` in the Python that runs the script; mlw then also records it as a run. A call takes about a microsecond and
does not wait for the disk or the network.
"""

RUN_TEXT = """
### `run`

The current run: `run.id`, `run.folder`, `run.outputs` (the folder `outputs/`), and `run.off` (true if nothing is recorded).
"""

PROGRAM_TEXT = """
## In a program or notebook

Install `mlworkbench` in the Python that you use. Anything that is not on this page can change without notice.

```python
from mlworkbench import History

history = History()
for run in history.list("accuracy > 0.9", sort="-accuracy", limit=5):
    print(run.id, run.status.value, run.metrics["accuracy"])
```

[Submit from Python](../how-to/submit-from-python.md) shows how to submit runs and use their results.
"""

AFTER_CHECKS = "`computetarget check` and `doctor gpu` exit with 75 if something that runs require is missing, and with 69 if the machine cannot be reached."

AFTER_EVENTS = "The run folder also contains `log` (the script's output), `metrics/` (logged metrics), `gpu.jsonl` (GPU samples), and `exit.json` (the process's exit status). See [how a run works](../explanation/how-a-run-works.md#on-disk)."

IN_CONTAINERS = "In containers, `HOME`, `USER`, and `LOGNAME` are also set. mlw adds variables from `EnvironmentVariables` in the run configuration, `--env`, and `--secret` last."

PASSED = "A variable that you exported reaches the script if `PassEnvironment` in the run configuration contains its name. The default is `PassEnvironment: default`: names that select a backend, a mode, or a label. The run record contains the values, and the run's Environment tab shows them. `EnvironmentVariables` in the run configuration, `--env`, and `--secret` take precedence."

AFTER_PASSED = """- `PassEnvironment: [default, DATA_FOLDER]` adds a name, `[DATA_FOLDER]` passes only this variable, and `none` passes nothing. Variables that are not set are skipped.
- A project can name other variables only if you allow it: `mlw settings add pass-environment DATA_FOLDER`. For one run, use `--env DATA_FOLDER`.
- mlw never passes a variable whose name contains `KEY`, `TOKEN`, `SECRET`, `PASSWORD`, `PASSWD`, `PASSPHRASE`, or `CREDENTIAL`, or whose value is a URL with credentials. Use `--secret NAME`.
- mlw passes `MLFLOW_TRACKING_URI` and `MLFLOW_REGISTRY_URI` only if the target can use them. To other targets than `local`, mlw passes neither a path nor a server on `localhost`. On `local`, mlw does not pass a relative path. mlw prints a note with the reason.
- For runs that you submit in the browser or over HTTP, the shell is the one in which you started `mlw ui`. A rerun reads the variables of the shell in which you start it."""

AFTER_METRICS = "`metrics` returns an object with three arrays of equal length: `steps`, `times`, and `values`. All errors are subclasses of `MlwError` in `mlworkbench.errors` and have `message`, `hint`, `more` (a page of `mlw explain`, or None), and `exit_code`."

PROJECT_TEXT = "Attributes: `root`, `id`, and `name`. `computes()` and `runconfigs()` return the names of compute targets and run configurations. `compute(name)` and `runconfig(name)` read and validate a file and return its content."
