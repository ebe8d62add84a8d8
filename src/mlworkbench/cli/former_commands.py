"""Words of earlier versions of the original (section 2.7 of the fact sheet), which still work and print a hint."""

from __future__ import annotations

# Command as it was → as it is.
OLD_WORDS = {
    ("execute", "start"): ("experiment", "submit"),
    ("computecontext",): ("computetarget",),
    ("runconfigurations",): ("runconfiguration",),
}
# Command as it is → option as it was → as it is.
OLD_OPTIONS = {
    ("experiment", "submit"): {"--runconfig": "--run-configuration"},
    ("submit",): {"--runconfig": "--run-configuration"},
    ("experiment", "prepare"): {"--runconfig": "--run-configuration"},
    ("history", "list"): {"--path": "--project"},
    ("history", "promote"): {"--assets": "--artifact-path"},
    ("history", "info"): {"--artifacts": "--artifact"},
    ("history", "download"): {"--artifacts": "--artifact", "--output-directory": "-d"},
    ("asset", "download"): {"--output-directory": "-d"},
}
# What has no successor here: the sentence, and what to do. Asked only about commands that do not exist.
_SERVING = "to get outputs of a run, use 'mlw history download' or 'mlw history promote'"
_START = "create a project with 'mlw project create demo'"
GONE = {
    "account": ("mlw needs no account", _START),
    "workspace": (
        "mlw needs no workspace: projects and the run history are on this machine",
        "list runs with 'mlw history list'",
    ),
    "login": ("mlw needs no account and no login", _START),
    "hostacct": ("mlw has no model management", _SERVING),
    "env": ("mlw has no model management", _SERVING),
    "image": ("mlw has no model management", _SERVING),
    "manifest": ("mlw has no model management", _SERVING),
    "model": ("mlw has no model management", _SERVING),
    "service": ("mlw has no model management", _SERVING),
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
# Options of submit that take a value: behind the first word that is none of them, all belongs to the user's script.
VALUED = frozenset(
    "-c --run-configuration --runconfig -t --target --name --tag --env --secret --timeout --key --allow-mount"
    " --allow-build --allow-network --gpus --locked --project -o --output --query --sweep --max-runs --parallel --seed"
    " --metric --goal".split()
)


def translate(words: list[str]) -> tuple[list[str], str | None]:
    """The words of today, and the line to print if they differ; what belongs to the user's script stays as it is."""
    if words[:1] in (["az"], ["ml"]):
        return _without_az(words)
    command, rest = _command(words)
    ours, theirs = _split(command, rest)
    options = _options(command, ours)
    if command == ["computetarget", "attach"]:
        options = _attach(options)
    new = [*command, *options, *theirs]
    return (new, None) if new == words else (new, _hint(words, new, len(theirs)))


def _without_az(words: list[str]) -> tuple[list[str], str | None]:
    """``az ml experiment submit``, as it stands in tutorials of the original."""
    start = 2 if words[:2] == ["az", "ml"] else 1
    new, hint = translate(words[start:])
    return new, hint or f"hint: omit '{' '.join(words[:start])}': mlw {' '.join(new[:2])}".rstrip()


def _command(words: list[str]) -> tuple[list[str], list[str]]:
    for old, now in OLD_WORDS.items():
        if tuple(words[: len(old)]) == old:
            words = [*now, *words[len(old) :]]
            break
    count = 1 if words[:1] == ["submit"] else 2
    return words[:count], words[count:]


def _split(command: list[str], rest: list[str]) -> tuple[list[str], list[str]]:
    """(words of ours, words of the user's): only submit has such."""
    if command not in (["experiment", "submit"], ["submit"]):
        end = rest.index("--") if "--" in rest else len(rest)
        return rest[:end], rest[end:]
    index = 0
    while index < len(rest):
        word = rest[index]
        if word in ("--", "-m") or not word.startswith("-") or word == "-":
            return rest[:index], rest[index:]
        index += 2 if word in VALUED else 1
    return rest, []


def _options(command: list[str], words: list[str]) -> list[str]:
    known = OLD_OPTIONS.get(tuple(command), {})
    new = []
    for word in words:
        option, equals, value = word.partition("=")
        now = known.get(option)
        if now is None:
            new.append(word)
        elif equals and now.startswith("--"):
            new.append(f"{now}={value}")
        else:
            new += [now, value] if equals else [now]
    return new


def _attach(words: list[str]) -> list[str]:
    """The type was an option until December 2017; ``--cluster`` still earlier. Without one the command decides."""
    if words[:1] and not words[0].startswith("-"):
        return words  # named as today, or a mistake that the command itself explains
    kind, rest, index = "", [], 0
    while index < len(words):
        option, equals, value = words[index].partition("=")
        if option in ("--type", "-t"):
            if not equals:
                index += 1
                value = words[index] if index < len(words) else ""
            kind = value
        elif option == "--cluster":
            kind = option.removeprefix("--")
        else:
            rest.append(words[index])
        index += 1
    return [kind, *rest] if kind else words


def _hint(old: list[str], new: list[str], theirs: int) -> str:
    """Names what changed only: values on the line may be private."""
    before, after = old[: len(old) - theirs], new[: len(new) - theirs]
    gone = [word.partition("=")[0] for word in before if word not in after]
    come = [word.partition("=")[0] for word in after if word not in before]
    if new[:2] == ["computetarget", "attach"]:  # the type was a value, or left out, and is a word of its own
        gone = [*before[:2], *(word for word in gone if word in ("--type", "-t", "--cluster"))]
        come = after[:3]
    return f"hint: '{' '.join(gone)}' is now '{' '.join(come)}'"
