"""Former commands and options of Azure ML Workbench, which still work and print a hint."""

from __future__ import annotations

# Former command → current command.
FORMER_COMMANDS = {
    ("execute", "start"): ("experiment", "submit"),
    ("computecontext",): ("computetarget",),
    ("runconfigurations",): ("runconfiguration",),
}
# Current command → former option → current option.
FORMER_OPTIONS = {
    ("experiment", "submit"): {"--runconfig": "--run-configuration"},
    ("submit",): {"--runconfig": "--run-configuration"},
    ("experiment", "prepare"): {"--runconfig": "--run-configuration"},
    ("history", "list"): {"--path": "--project"},
    ("history", "promote"): {"--assets": "--artifact-path"},
    ("history", "info"): {"--artifacts": "--artifact"},
    ("history", "download"): {"--artifacts": "--artifact", "--output-directory": "-d"},
    ("asset", "download"): {"--output-directory": "-d"},
}
# Commands without a successor → (message, hint). Used only for commands that do not exist.
_OUTPUTS_HINT = "to get outputs of a run, use 'mlw history download' or 'mlw history promote'"
_CREATE_HINT = "create a project with 'mlw project create demo'"
REMOVED_COMMANDS = {
    "account": ("mlw needs no account", _CREATE_HINT),
    "workspace": (
        "mlw needs no workspace: projects and the run history are on this machine",
        "list runs with 'mlw history list'",
    ),
    "login": ("mlw needs no account and no login", _CREATE_HINT),
    "hostacct": ("mlw has no model management", _OUTPUTS_HINT),
    "env": ("mlw has no model management", _OUTPUTS_HINT),
    "image": ("mlw has no model management", _OUTPUTS_HINT),
    "manifest": ("mlw has no model management", _OUTPUTS_HINT),
    "model": ("mlw has no model management", _OUTPUTS_HINT),
    "service": ("mlw has no model management", _OUTPUTS_HINT),
    "datasource": (
        "mlw has no data preparation",
        "read data in the script; files in AZUREML_NATIVE_SHARE_DIRECTORY are kept after runs",
    ),
    "notebook": ("mlw does not start notebooks", "run 'jupyter notebook' in the project folder"),
    "project update": (
        "mlw needs no repository setting: it records the git state of the project",
        "see 'mlw show RUN'",
    ),
    "project delete": (
        "mlw does not delete projects: delete the folder yourself",
        "its runs stay in the history; delete one with 'mlw history remove RUN'",
    ),
}
# Options of submit that take a value. The script is the first argument that is neither option nor value.
OPTIONS_WITH_VALUE = frozenset(
    "-c --run-configuration --runconfig -t --target --name --tag --env --secret --timeout --key --allow-mount"
    " --allow-build --allow-network --gpus --launcher --processes --retries --retry-on --retry-delay --resume"
    " --locked --project -o --output --query --sweep"
    " --max-runs --parallel --seed --metric --goal".split()
)


def translate_arguments(arguments: list[str]) -> tuple[list[str], str | None]:
    """Return current arguments, and a hint if they changed. Script arguments are not translated."""
    if arguments[:1] in (["az"], ["ml"]):
        return _strip_az_ml(arguments)
    command, rest = _translate_command(arguments)
    mlw_arguments, script_arguments = _split_script_arguments(command, rest)
    options = _translate_options(command, mlw_arguments)
    if command == ["computetarget", "attach"]:
        options = _translate_attach_type(options)
    new = [*command, *options, *script_arguments]
    return (new, None) if new == arguments else (new, _describe_changes(arguments, new, len(script_arguments)))


def _strip_az_ml(arguments: list[str]) -> tuple[list[str], str | None]:
    """Strip ``az ml``, which begins the commands in Azure ML Workbench tutorials."""
    start = 2 if arguments[:2] == ["az", "ml"] else 1
    new, hint = translate_arguments(arguments[start:])
    return new, hint or f"hint: omit '{' '.join(arguments[:start])}': mlw {' '.join(new[:2])}".rstrip()


def _translate_command(arguments: list[str]) -> tuple[list[str], list[str]]:
    for former, current in FORMER_COMMANDS.items():
        if tuple(arguments[: len(former)]) == former:
            arguments = [*current, *arguments[len(former) :]]
            break
    count = 1 if arguments[:1] == ["submit"] else 2
    return arguments[:count], arguments[count:]


def _split_script_arguments(command: list[str], rest: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments of mlw and those of the user's script, which only submit accepts."""
    if command not in (["experiment", "submit"], ["submit"]):
        end = rest.index("--") if "--" in rest else len(rest)
        return rest[:end], rest[end:]
    index = 0
    while index < len(rest):
        argument = rest[index]
        if argument in ("--", "-m") or not argument.startswith("-") or argument == "-":
            return rest[:index], rest[index:]
        index += 2 if argument in OPTIONS_WITH_VALUE else 1
    return rest, []


def _translate_options(command: list[str], arguments: list[str]) -> list[str]:
    renamed = FORMER_OPTIONS.get(tuple(command), {})
    new = []
    for argument in arguments:
        option, equals, value = argument.partition("=")
        current = renamed.get(option)
        if current is None:
            new.append(argument)
        elif equals and current.startswith("--"):
            new.append(f"{current}={value}")
        else:
            new += [current, value] if equals else [current]
    return new


def _translate_attach_type(arguments: list[str]) -> list[str]:
    """Turn the options ``--type`` and ``--cluster`` (until December 2017) into the type argument."""
    if arguments[:1] and not arguments[0].startswith("-"):
        return arguments  # current form, or an error that the command reports
    kind, rest, index = "", [], 0
    while index < len(arguments):
        option, equals, value = arguments[index].partition("=")
        if option in ("--type", "-t"):
            if not equals:
                index += 1
                value = arguments[index] if index < len(arguments) else ""
            kind = value
        elif option == "--cluster":
            kind = option.removeprefix("--")
        else:
            rest.append(arguments[index])
        index += 1
    return [kind, *rest] if kind else arguments


def _describe_changes(old: list[str], new: list[str], script_count: int) -> str:
    """Return a hint that names only the changes, because values may be private."""
    before, after = old[: len(old) - script_count], new[: len(new) - script_count]
    removed = [argument.partition("=")[0] for argument in before if argument not in after]
    added = [argument.partition("=")[0] for argument in after if argument not in before]
    if new[:2] == ["computetarget", "attach"]:  # the type was the value of an option and is now an argument
        removed = [*before[:2], *(argument for argument in removed if argument in ("--type", "-t", "--cluster"))]
        added = after[:3]
    return f"hint: '{' '.join(removed)}' is now '{' '.join(added)}'"
