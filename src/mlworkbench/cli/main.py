"""Entry point of ``mlw``: run the command and turn errors into a message and an exit code.

Slow imports are local, because shell completion also starts here.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing would slow down shell completion
if TYPE_CHECKING:
    import click

    from ..errors import MlwError, UsageError


def main() -> None:
    """Run the command and exit with its exit code, never with a traceback."""
    shell = os.environ.get("_MLW_COMPLETE")
    if shell:
        _complete(shell)
    from ..errors import EXIT_DETACHED  # noqa: PLC0415
    from . import render  # noqa: PLC0415

    if os.environ.pop("MLW_ERROR_FORMAT", "") == "json":  # applies to this process, not to its children
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

        # Exit by raising the signal itself, so that a shell stops a loop around mlw. The shell reports 130.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    _exit(code)


def _exit(code: int) -> None:
    """Exit without waiting for threads that could crash or block the shutdown.

    Threads of py-rattler occasionally crash an interpreter that is shutting down. Threads of ``mlw ui``
    may be waiting for an unresponsive machine.
    """
    if "rattler" in sys.modules or "nicegui" in sys.modules:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _complete(shell: str) -> None:
    try:
        from .completer import complete  # noqa: PLC0415

        sys.stdout.write(complete(shell, sys.argv[1:]))
        sys.stdout.flush()
    except Exception:  # noqa: BLE001 - a message would garble the command line
        pass
    os._exit(0)  # skip the interpreter's slow shutdown


def _run(arguments: list[str]) -> int:
    import click  # noqa: PLC0415

    from ..errors import MlwError  # noqa: PLC0415
    from . import render  # noqa: PLC0415
    from .command_tree import mlw  # noqa: PLC0415
    from .former_commands import translate_arguments  # noqa: PLC0415

    arguments, hint = translate_arguments(arguments)
    if hint:
        render.message(hint)
    try:
        result = mlw.main(args=arguments, prog_name="mlw", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except MlwError as error:
        return _report_failure(error)
    except click.exceptions.NoArgsIsHelpError as help_error:
        click.echo(help_error.format_message())
        return 0
    except click.exceptions.Exit as exit_error:
        return exit_error.exit_code
    except click.ClickException as error:
        return _report_failure(_to_usage_error(error))
    except click.Abort:  # click's equivalent of KeyboardInterrupt
        raise KeyboardInterrupt from None
    except SystemExit:  # click exits this way if the pipe closes while it writes help; nothing else here calls exit
        raise render.OutputClosed from None
    except Exception as error:  # noqa: BLE001 - users never see a traceback
        return _report_failure(_to_internal_error(error))


def _report_failure(error: MlwError) -> int:
    from . import render  # noqa: PLC0415

    if os.environ.get("MLW_DEBUG"):
        import traceback  # noqa: PLC0415

        sys.stderr.write(traceback.format_exc())
    render.fail(error)
    return error.exit_code


def _to_usage_error(error: click.ClickException) -> UsageError:
    from ..errors import UsageError  # noqa: PLC0415

    context = getattr(error, "ctx", None)
    hint = f"see: {context.command_path} --help" if context else None
    message = error.format_message()
    choice = _closest_choice(error)
    if choice:
        return UsageError(message.rstrip("."), f"did you mean {choice}?")
    option = getattr(error, "option_name", None)
    if context and getattr(error, "possibilities", None) is not None and option:
        message = error.message  # without click's suggestions, which include hidden options
        suggestion = _closest_option(context, option)
        hint = f"did you mean {suggestion}?" if suggestion else hint
    return UsageError(message.rstrip("."), hint)


def _closest_choice(error: click.ClickException) -> str | None:
    """Return the choice closest to an invalid value of an option or argument."""
    import difflib  # noqa: PLC0415
    import re  # noqa: PLC0415

    choices = getattr(getattr(getattr(error, "param", None), "type", None), "choices", None)
    typed = re.search(r"'([^']+)' is not one of", error.format_message()) if choices else None
    names = [str(choice) for choice in choices or ()]
    return next(iter(difflib.get_close_matches(typed[1], names, n=1)), None) if typed else None


def _closest_option(context: click.Context, typed: str) -> str | None:
    import difflib  # noqa: PLC0415

    visible = [
        parameter for parameter in context.command.get_params(context) if not getattr(parameter, "hidden", False)
    ]
    names = [
        name for parameter in visible for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("--")
    ]
    replacements = {name: name for name in names}
    if "--output" in names:
        replacements |= {
            f"--{parameter}": f"-o {parameter}"
            for parameter in ("json", "csv", "tsv", "yaml")
            if parameter in _output_formats(visible)
        }
    if "--run-configuration" in names:
        replacements["--config"] = "-c, --run-configuration"
    closest = next(iter(difflib.get_close_matches(typed, replacements, n=1)), None)
    return replacements[closest] if closest else None


def _output_formats(options: list[click.Parameter]) -> list[str]:
    """Return the values that ``-o`` accepts."""
    choices = (getattr(option.type, "choices", ()) for option in options if "--output" in option.opts)
    return [str(choice) for values in choices for choice in values]


def _to_internal_error(error: Exception) -> MlwError:
    from ..errors import MlwError  # noqa: PLC0415

    message = str(error) or type(error).__name__
    return MlwError(
        f"internal error: {type(error).__name__}: {message}",
        "active runs are not affected; run the command again with --debug to see the traceback",
        code="internal-error",
    )
