"""The words of docs/reference that the code does not say; reference_pages.py checks that none is missing or too much."""

from __future__ import annotations

from mlworkbench import errors
from mlworkbench.remote import endings

COMMANDS = """
All commands with their options. `mlw COMMAND --help` says the same. These options are taken by most of them:

| option | meaning |
| --- | --- |
| `--project PATH` | Project folder (default: the current directory) |
| `--debug` | Show tracebacks |
| `--no-color` | Disable colors |
| `-o`, `--output` `table`, `json`, `jsonc` or `tsv` | Output format |
| `--query JMESPATH` | Filter the result with a JMESPath expression |
| `-h`, `--help` | Show the help of a command |

A run is named by its id, any unique part of it, or its name. Words of earlier versions of the original still work, and print a hint.
"""

TROUBLE = """
Every message of mlw says what happened (`error:`) and what to do (`hint:`). Where that is not enough it names a text of this page: `more: mlw explain NAME` prints it, on any machine and without a network. `mlw explain` lists all of them, and
`mlw explain "the words that you see"` finds the one that speaks of a message. `…` stands for names and numbers.

First aid, whatever it is:

| command | tells |
| --- | --- |
| `mlw show RUN` | the run on one page: status, cause, GPU, children, files |
| `mlw logs RUN` | all that the script printed |
| `mlw doctor` | what is wrong with this machine |
| `mlw project validate`, `mlw project doctor` | what is wrong in the project's files |
| `mlw computetarget check NAME` | what is missing on the machine, with the remedy |
| `mlw doctor gpu -t NAME` | the way from the driver to the framework, link by link |
| `mlw experiment diagnostics RUN` | all about a run in one zip, secrets masked |
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
    endings.SUCCEEDED: "The script returned 0.",
    endings.FAILED: "The script returned another code (`failed (exit 3)`), or a signal ended it (`failed (signal 15)`). The cause has the exception and the line of yours.",
    endings.OUT_OF_MEMORY: "The kernel killed it, or a child of it in its container, for want of memory. Also if the script itself then returned 0: what it did may be incomplete.",
    endings.TIMEOUT: "It was stopped at its `--timeout`.",
    endings.CANCELLED: "Somebody cancelled it. TERM was enough, or it had not started.",
    endings.CANCELLED_FORCED: "Somebody cancelled it, and after the grace KILL was needed.",
    endings.ENVIRONMENT_FAILED: "Its packages could not be installed. The script did not start; `build.log` has the rest.",
    endings.COULD_NOT_START: "Something else was missing: an image, a program, GPUs that the machine does not have. The script did not start.",
    endings.TARGET_REBOOTED: "The machine was restarted while the run was going on.",
    endings.TARGET_RESTARTED: "The target is a container itself (a rented pod), and it was restarted while the run was going on.",
    endings.TARGET_LOST: "The run's folder on the machine is gone, or you gave the run up with `mlw cancel --forget`.",
    endings.ENGINE_STOPPED: "The container engine, or somebody who used it, ended the container.",
    endings.EXIT_UNKNOWN: "The process has ended, and no exit status was recorded. The cause says why. Log and outputs may be whole.",
}

ENDINGS_TEXT = """
How a run has ended, as `mlw show RUN` and the key `ending` of its record tell it. The status has three words for an end; the ending says more. It is decided on the target, in one place, from evidence: exit code, signal, what was asked of the run, and
what the kernel counted.
"""

EXIT_TEXT = """
`mlw submit` and `mlw logs -f` return the code of the script. mlw's own failures have numbers that scripts rarely use.
"""

OF_RUNS = (
    ("0", "It worked; of a run: the script returned 0"),
    (
        "1–125",
        "Of a run: the script's own code. Of other commands, 1: something that was looked for is wrong (`doctor`, `project validate`, `project doctor`), or not all could be copied or sent",
    ),
    ("128 + *n*", "Of a run: signal *n* ended it; 137 is KILL, 139 a segmentation fault"),
    (str(errors.EXIT_TIMEOUT), "Of a run: over its time limit"),
    ("143", "Of a run: cancelled"),
    (str(errors.EXIT_DETACHED), "You pressed Ctrl-C. A run goes on"),
)

EVENTS = {
    "accepted": (
        "A supervisor has taken the run on",
        "`machine`, `boot_id`, `processes`: which machine, boot and process table; `protocol`; `pid`; `root`: ID of the root folder",
    ),
    "step": (
        "The preparation goes on",
        "`step`: `code` (with `snapshot`), `environment` (with `digest`) or `image` (with `image`: it is being pulled)",
    ),
    "queued": ("It waits for GPUs; told again when the reason changes", "`reason`, in words"),
    "gpus": (
        "The GPUs that it got, or sees",
        "`gpus`: a list of `index`, `uuid`, `name`, `capability`, `bus_id`, `memory_clock`, `memory_total`, `memory_free`; `driver`; `cuda`; `held`: whether it has them alone; `asked`",
    ),
    "gpu_idle": ("It asked for GPUs and has not used them for a while", "`warning`; `diagnosis`: `cause`, `remedy`"),
    "started": ("The script runs", "`pid`; `time` of the start"),
    "spark": (
        "A Spark application, as far as it is known",
        "`app`, `version`, `master`, `deploy`, `ui`, `history`, `events`, `number`",
    ),
    "spark_progress": (
        "How far it is",
        "`jobs`, `stages`, `tasks`, `executors`: names and counts; `members`: the executors; `ended`",
    ),
    "spark_trouble": (
        "A lost executor, a failed task or stage",
        "`number`, `app`, `what`, `reason`, `executor`, `host`, `stage`, `name`, `job`",
    ),
    "stopping": (
        "A signal is sent to it",
        "`why`: `cancel` or `timeout`; `grace` in seconds; `stuck`: processes that do not die of KILL",
    ),
    "collecting": (
        "The script has ended, and its outputs are being listed",
        "`ending`, `cause`, `exit`, `signal`, `ended`, `elapsed`, `log_size`, as in `finished`",
    ),
    "finished": (
        "It has ended. Nothing follows",
        "`ending` ([which](endings.md)), `cause`, `exit`, `signal`, `ended`, `elapsed` in seconds, `outputs`, `output_bytes`, `log_size`, `leftovers`: processes that still live; `left_out`: metrics and outputs that are not read or not hashed, and why; `gpu`: the verdict",
    ),
}

EVENTS_TEXT = """
`events.jsonl` in a run's folder is its journal: one JSON object on each line, written by the supervisor, only ever appended. What a run's record shows of its state is computed from these lines and nothing else.

```json
{"w": "sup", "seq": 3, "t": 1794793719.808, "kind": "started", "data": {"pid": 13097, "time": 1794793719.801}}
```

`w` is the writer, `seq` counts its lines, `t` is the time there (seconds since 1970), `kind` one of the words below. A reader passes over kinds and fields that it does not know. A line at the end that is not whole is
still being written.
"""

READ = (
    (
        "MLW_HOME",
        "Folder of history, keys and caches; `~/.local/share/mlworkbench` on Linux (or below `XDG_DATA_HOME`) if not set. It must be yours alone",
    ),
    ("MLW_DEBUG", "Any value: show tracebacks, as `--debug` does"),
    ("MLW_TRACKING", "`off`: scripts record nothing"),
    (
        "MLW_REGISTRY_PASSWORD",
        "Password of a private registry; counts only if `MLW_REGISTRY_SERVER` is the image's server",
    ),
    ("MLW_REGISTRY_SERVER", "See there"),
    (
        "MLW_SECRET_",
        "With a name behind it, as in `MLW_SECRET_TOKEN`: the value of `--secret TOKEN`, before a variable `TOKEN`",
    ),
    ("NO_COLOR", "Any value: no colours"),
    ("COLUMNS", "Width of tables"),
    ("XDG_RUNTIME_DIR", "Where the sockets of kept SSH connections are"),
    ("SSH_AUTH_SOCK", "Your SSH agent, as ssh itself uses it"),
    ("DOCKER_HOST", "Which engine `docker` targets on this machine use"),
    (
        "UV_INDEX_URL",
        "Like the other settings of uv (`UV_DEFAULT_INDEX`, `UV_EXTRA_INDEX_URL`, `UV_FIND_LINKS` …): where pip's packages are. They go before pip's own",
    ),
    (
        "PIP_CONFIG_FILE",
        "Like `PIP_INDEX_URL`, `PIP_EXTRA_INDEX_URL`, `PIP_FIND_LINKS`, `PIP_NO_INDEX`, and pip's files: pip's settings are obeyed",
    ),
    (
        "UV_PYTHON_DOWNLOADS_JSON_URL",
        "A list of uv's Pythons, with their addresses: for a mirror. Used for targets too",
    ),
    ("UV_PYTHON_INSTALL_MIRROR", "Mirror of the Pythons that uv downloads, on this machine and on targets"),
    (
        "NETRC",
        "File with passwords of package indexes, for HTTPS and for addresses that you name; `~/.netrc` if not set",
    ),
    (
        "MLFLOW_TRACKING_USERNAME",
        "With `MLFLOW_TRACKING_PASSWORD`, or `MLFLOW_TRACKING_TOKEN`: for `history export --mlflow`. Certificates: `MLFLOW_TRACKING_SERVER_CERT_PATH`, `MLFLOW_TRACKING_CLIENT_CERT_PATH`, `MLFLOW_TRACKING_INSECURE_TLS`; time: `MLFLOW_HTTP_REQUEST_TIMEOUT`",
    ),
)

GIVEN = (
    ("MLW_RUN_ID", "The run"),
    ("MLW_RUN_FOLDER", "Its folder on the machine"),
    ("AZUREML_NATIVE_SHARE_DIRECTORY", "The project's folder that outlives runs; ends with a separator"),
    ("MLFLOW_TRACKING_URI", "`mlw:run`, so that MLflow writes into the run. Yours wins"),
    ("PYTHONPATH", "Begins with the in-run library; yours comes behind it"),
    ("PYTHONUNBUFFERED", "`1`, so that lines are seen when they are printed. Yours wins"),
    ("CUDA_VISIBLE_DEVICES", "UUIDs of the GPUs that the run holds; empty with `--gpus none`"),
    ("CUDA_DEVICE_ORDER", "`PCI_BUS_ID`, where the run holds GPUs"),
    ("VIRTUAL_ENV", "Or `CONDA_PREFIX`: the environment, where mlw has made it; then `PYTHONNOUSERSITE` is `1`"),
    ("MLW_TRACKING", "`off` where the run configuration says `TrackedRun: false`"),
)

PYTHON_TEXT = """
## In a script

`import mlworkbench` works in every run, with any Python from 3.6 on, and with nothing to install. In a script that you start yourself it needs `mlworkbench` in that Python; then it becomes a run of the history, too. A call costs about a microsecond and
waits for neither disk nor network.
"""

RUN_TEXT = """
### `run`

The run around this process: `run.id`, `run.folder`, `run.outputs` (the folder `outputs/`), `run.off` (whether nothing is recorded).
"""

PROGRAM_TEXT = """
## In a program or notebook

For a Python that has `mlworkbench` installed. What is not on this page may change without notice.

```python
from mlworkbench import History

history = History()
for run in history.list("accuracy > 0.9", sort="-accuracy", limit=5):
    print(run.id, run.status.value, run.metrics["accuracy"])
```
"""

AFTER_CHECKS = "`computetarget check` and `doctor gpu` exit with 75 if something is missing that runs need, and with 69 if the machine cannot be reached."

AFTER_EVENTS = "Beside it lie `log` (the script's output), `metrics/` (what was logged), `gpu.jsonl` (samples of the GPUs) and `exit.json` (how the process ended): see [how a run works](../explanation/how-a-run-works.md#on-disk)."

IN_CONTAINERS = "In containers `HOME`, `USER` and `LOGNAME` are set as well. Then come `EnvironmentVariables` of the run configuration, `--env` and `--secret`."

AFTER_METRICS = "The answer of `metrics` has `steps`, `times` and `values`, three arrays of one length. Errors are those of `mlworkbench.errors`, all of them `MlwError` with `message`, `hint`, `more` (a name for `mlw explain`, or nothing) and `exit_code`."

PROJECT_TEXT = "It has `root`, `id` and `name`. `computes()` and `runconfigs()` are the names of its files; `compute(name)` and `runconfig(name)` what a file says, checked."
