"""The command line. Everything heavy is imported inside the command that needs it: `offbeat --help` answers at once."""

import sys
import warnings
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from offbeat import __version__
from offbeat.cli import (
    check,
    config_keys,
    data,
    delays,
    embed,
    engines,
    export,
    landscape,
    lists,
    papers,
    proposition,
    report,
    runs,
    scale,
    store,
    studies,
    sweeps,
    timing,
    validation,
)
from offbeat.cli.starved import check_address_space, starved, threads_say_one_line
from offbeat.cli.streams import is_output, lead_nowhere, open_closed_streams
from offbeat.core.errors import OffbeatError, OffbeatWarning
from offbeat.core.interruption import exit_code, like_ctrl_c
from offbeat.core.legible import legible


class _InterruptedError(OffbeatError):
    def __init__(self) -> None:
        super().__init__("interrupted")
        self.exit_code = exit_code()


class _Commands(TyperGroup):
    """Says so when Ctrl-C ends a command that has nothing to add itself; typer would end without a word."""

    def make_context(self, *words: Any, **more: Any) -> Any:
        try:
            return super().make_context(*words, **more)
        except KeyboardInterrupt:
            raise _InterruptedError from None

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _InterruptedError from None


app = typer.Typer(
    cls=_Commands,
    help="Training out of sync, on purpose.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
runs_app = typer.Typer(help="Run folders: list, show, filter, tag, remove.", invoke_without_command=True)
data_app = typer.Typer(help="Datasets: what is there, and how to get them.", no_args_is_help=True)
embed_app = typer.Typer(help="Word embeddings of a word2vec run.", no_args_is_help=True)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"offbeat {__version__}")
        raise typer.Exit


@app.callback()
def _whole(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="say the version", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Training out of sync, on purpose."""
    check_address_space(ctx.invoked_subcommand)


# One line a command, in the order of `offbeat --help`.
app.command()(runs.run)
app.command()(runs.resume)
app.command()(scale.scale)
app.command()(runs.show)
app.command()(studies.compare)
app.command()(sweeps.sweep)
app.command()(timing.time)
app.command()(papers.reproduce)
app.command()(papers.claims)
app.command()(proposition.proposition1)
app.command()(studies.demo)
app.command()(engines.replay)
app.command()(engines.calibrate)
app.command()(validation.validate)
app.command()(report.report)
app.command()(export.export)
app.command()(landscape.landscape)
app.command()(delays.delays)
app.command()(store.diff)
app.command("list")(lists.list_)
app.command()(config_keys.config)
app.command()(check.check)
app.command()(check.cite)
app.add_typer(runs_app, name="runs")
runs_app.callback()(store.runs)
runs_app.command("list")(store.list_runs)
runs_app.command("show")(store.show_runs)
runs_app.command("tag")(store.tag_runs)
runs_app.command("remove")(store.remove_runs)
app.add_typer(data_app, name="data")
data_app.command("list")(data.data_list)
data_app.command("get")(data.data_get)
app.add_typer(embed_app, name="embed")
embed_app.command("neighbours")(embed.neighbours)
embed_app.command("evaluate")(embed.evaluate)
embed_app.command("save")(embed.save)


def _one_line(message: object) -> str:
    return legible(" ".join(str(message).split()))


def _got(e: Exception) -> str:
    """What could not be read as a number, which typer knows but does not say."""
    errors = getattr(e.__cause__, "errors", None)
    return f", got {errors()[0]['input']!r}" if errors is not None else ""


def _show_warning(message: Any, category: type[Warning], *where: Any, **details: Any) -> None:
    """Ours in one line, without the place in the code; those of libraries as they are."""
    ours = issubclass(category, OffbeatWarning)
    text = f"offbeat: {_one_line(message)}\n" if ours else warnings.formatwarning(message, category, *where[:2])
    sys.stderr.write(text)


def main() -> NoReturn:
    """Errors in one line on stderr, exit code 2 for bad input, no tracebacks for what people do wrong."""
    open_closed_streams()
    warnings.showwarning = _show_warning
    threads_say_one_line()
    like_ctrl_c()
    try:
        code = app(standalone_mode=False, prog_name="offbeat")
        sys.stdout.flush()
    except OffbeatError as e:
        print(f"offbeat: {_one_line(e)}", file=sys.stderr)
        code = e.exit_code
    except KeyboardInterrupt:
        print("offbeat: interrupted", file=sys.stderr)
        code = exit_code()
    except BrokenPipeError:  # the reader of our output has gone
        lead_nowhere(sys.stdout.fileno())
        code = 1
    except Exception as e:
        if (too_little := starved(e)) is not None:
            print(f"offbeat: {_one_line(too_little)}", file=sys.stderr)
            code = 1
        elif isinstance(e, OSError) and is_output(e):
            lead_nowhere(sys.stdout.fileno())
            print(f"offbeat: what was done cannot be printed: {e.strerror}", file=sys.stderr)
            code = 1
        elif hasattr(e, "format_message"):  # typer's own complaints about arguments
            print(f"offbeat: {_one_line(e.format_message())}{_got(e)}", file=sys.stderr)
            code = 2
        elif type(e).__name__ in ("Abort", "Exit"):
            code = getattr(e, "exit_code", 1)
        else:
            raise
    sys.exit(code if isinstance(code, int) else 0)
