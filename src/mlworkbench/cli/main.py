"""The command ``mlw``: finds the verb, runs it, turns every failure into a sentence and an exit code.

Whatever costs time is imported where it is needed: a TAB in a shell starts here, too.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in typing, whose import a TAB would wait for
if TYPE_CHECKING:
    import click

    from ..errors import MlwError, UsageError


def main() -> None:
    """Entry point: exits with the verb's code, never with a traceback."""
    shell = os.environ.get("_MLW_COMPLETE")
    if shell:
        _complete(shell)
    from ..errors import EXIT_DETACHED  # noqa: PLC0415
    from . import render  # noqa: PLC0415

    if os.environ.pop("MLW_ERROR_FORMAT", "") == "json":  # meant for this process, not for what it starts
        render.report_errors_as_json()
    try:
        with render.quiet_pipe():
            code = _run(sys.argv[1:])
    except render.OutputClosed as closed:
        code = int(str(closed.code))
    except KeyboardInterrupt:
        code = EXIT_DETACHED
        if os.name != "posix":
            sys.exit(code)
        import signal  # noqa: PLC0415

        # Die of the signal itself: a shell ends its loop only then, and reports 130 all the same.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    _leave(code)


def _leave(code: int) -> None:
    """py-rattler's threads may still want to report something, which now and then crashes an interpreter that ends;
    those of `mlw ui` may wait for a machine that does not answer, and would be waited for."""
    if "rattler" in sys.modules or "nicegui" in sys.modules:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _complete(shell: str) -> None:
    try:
        from .complete import answer  # noqa: PLC0415

        sys.stdout.write(answer(shell, sys.argv[1:]))
        sys.stdout.flush()
    except Exception:  # noqa: BLE001 - nobody can read a message in the middle of a line
        pass
    os._exit(0)  # neither does anybody wait for an interpreter to tidy up


def _run(words: list[str]) -> int:
    import click  # noqa: PLC0415

    from ..errors import MlwError  # noqa: PLC0415
    from . import render  # noqa: PLC0415
    from .renames import translate  # noqa: PLC0415
    from .verbs import mlw  # noqa: PLC0415

    words, hint = translate(words)
    if hint:
        render.message(hint)
    try:
        answer = mlw.main(args=words, prog_name="mlw", standalone_mode=False)
        return answer if isinstance(answer, int) else 0
    except MlwError as error:
        return _failed(error)
    except click.exceptions.NoArgsIsHelpError as asked:
        click.echo(asked.format_message())
        return 0
    except click.exceptions.Exit as left:
        return left.exit_code
    except click.ClickException as error:
        return _failed(_as_usage(error))
    except click.Abort:  # how click says it
        raise KeyboardInterrupt from None
    except SystemExit:  # click, writing a help text, takes a closed pipe so; nothing else of ours exits
        raise render.OutputClosed from None
    except Exception as error:  # noqa: BLE001 - the last stop: no traceback reaches a user
        return _failed(_as_bug(error))


def _failed(error: MlwError) -> int:
    from . import render  # noqa: PLC0415

    if os.environ.get("MLW_DEBUG"):
        import traceback  # noqa: PLC0415

        sys.stderr.write(traceback.format_exc())
    render.fail(error)
    return error.exit_code


def _as_usage(error: click.ClickException) -> UsageError:
    from ..errors import UsageError  # noqa: PLC0415

    context = getattr(error, "ctx", None)
    hint = f"see: {context.command_path} --help" if context else None
    what = error.format_message()
    choice = _near_choice(error)
    if choice:
        return UsageError(what.rstrip("."), f"did you mean {choice}?")
    option = getattr(error, "option_name", None)
    if context and getattr(error, "possibilities", None) is not None and option:
        what = error.message  # without click's own proposals, which know the hidden options
        near = _near_option(context, option)
        hint = f"did you mean {near}?" if near else hint
    return UsageError(what.rstrip("."), hint)


def _near_choice(error: click.ClickException) -> str | None:
    """Of an option that takes one of a few words."""
    import difflib  # noqa: PLC0415
    import re  # noqa: PLC0415

    choices = getattr(getattr(getattr(error, "param", None), "type", None), "choices", None)
    typed = re.search(r"'([^']+)' is not one of", error.format_message()) if choices else None
    names = [str(one) for one in choices or ()]
    return next(iter(difflib.get_close_matches(typed[1], names, n=1)), None) if typed else None


def _near_option(context: click.Context, typed: str) -> str | None:
    import difflib  # noqa: PLC0415

    visible = [one for one in context.command.get_params(context) if not getattr(one, "hidden", False)]
    names = [name for one in visible for name in (*one.opts, *one.secondary_opts) if name.startswith("--")]
    meant = {name: name for name in names}
    if "--output" in names:
        meant |= {f"--{one}": f"-o {one}" for one in ("json", "csv", "tsv", "yaml") if one in _formats(visible)}
    if "--run-configuration" in names:
        meant["--config"] = "-c, --run-configuration"
    near = next(iter(difflib.get_close_matches(typed, meant, n=1)), None)
    return meant[near] if near else None


def _formats(options: list[click.Parameter]) -> list[str]:
    """The values that -o accepts."""
    choices = (getattr(one.type, "choices", ()) for one in options if "--output" in one.opts)
    return [str(choice) for some in choices for choice in some]


def _as_bug(error: Exception) -> MlwError:
    from ..errors import MlwError  # noqa: PLC0415

    what = str(error) or type(error).__name__
    return MlwError(
        f"internal error: {type(error).__name__}: {what}",
        "active runs are not affected; run the command again with --debug to see the traceback",
        code="internal-error",
    )
