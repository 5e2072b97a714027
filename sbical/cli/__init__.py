"""The command line: ``sbical calibrate | plan | infer | status | compare | report | export | list | show``.

Exit codes: 0 done (whatever the verdict says), 2 a mistake that one message explains, 130 interrupted, 143 terminated.

SIGTERM ends a run as Ctrl-C does: workers closed, simulations kept. Where Ctrl-C is ignored from the start, as a shell script has
it for jobs in its background ("&", nohup), sbical ignores it too: it is meant for what runs in the foreground.
"""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Protocol, TextIO, Union

import tyro
from rich.console import Console
from rich.markup import escape
from tyro.conf import subcommand

from sbical.cli.browse import List, Show
from sbical.cli.run import Calibrate, Infer, Plan
from sbical.cli.saved import Compare, Export, Report, Status
from sbical.errors import SbicalError


class Command(Protocol):
    """A dataclass whose fields are arguments and whose docstrings are their help."""

    def run(self, console: Console) -> None:
        """Do it; raise SbicalError for anything the user can mend."""
        ...


#: Each command, and its line in "sbical --help"; its own --help shows the whole docstring.
COMMANDS: dict[str, tuple[type[Command], str]] = {
    "calibrate": (Calibrate, "Calibrate a simulator against recordings of a robot."),
    "plan": (Plan, "Say what calibrate would replay, simulate and cost; runs nothing."),
    "infer": (Infer, "Infer another robot that ran the same protocol, in seconds."),
    "status": (Status, "Say what a run has done, and what is left."),
    "compare": (Compare, "Say which of two simulators explains the same recordings better."),
    "report": (Report, "Write the report of a finished run again."),
    "export": (Export, "Write a run's result as MJCF, JSON or NPZ."),
    "list": (List, "List the simulators and priors that come with sbical."),
    "show": (Show, "Show a simulator's parameters or a prior's distributions."),
}

DESCRIPTION = """\
Learn what a robot's simulator gets wrong, from logs of the robot: a joint posterior over friction, inertia, actuation, \
delays and sensor noise, with a verdict on how far to trust it and calibrated domain-randomization ranges.

First steps: "sbical list", "sbical show servo_pendulum", "sbical calibrate servo_pendulum --prior hobby_servo"."""

#: Packages that a plain ``pip install sbical``, meant for workers, leaves out.
INFERENCE = {"torch", "pyro", "sbi", "zuko", "sklearn", "arviz_base", "arviz_stats", "arviz_plots", "matplotlib", "jinja2"}

#: Width of tables where no terminal says how wide it is.
PIPE_WIDTH = 120


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; argument mistakes exit with code 2 through SystemExit."""
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        command = _parse(list(sys.argv[1:] if args is None else args))
        with _terminable(), warnings.catch_warnings():
            warnings.showwarning = _short(errors, warnings.showwarning)
            command.run(console)
    except SbicalError as error:
        errors.print(f"[bold red]error:[/] {escape(str(error))}")
        return 2
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in INFERENCE:
            raise
        errors.print(f"[bold red]error:[/] this command needs {error.name}, which is not installed; run: pip install 'sbical\\[inference]'")
        return 2
    except OSError as error:
        # what no part of sbical expects of this machine: a full disk, a folder that must not be read, no more processes
        what = f"{error.strerror or error}" + (f" ('{error.filename}')" if error.filename else "")
        errors.print(f"[bold red]error:[/] the system refused: {escape(what)}; check free space, permissions and limits")
        return 2
    except KeyboardInterrupt as interrupt:
        errors.print("interrupted; no result was written")
        return 143 if isinstance(interrupt, Terminated) else 130
    return 0


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived."""


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end a command in order, as Ctrl-C does; Python itself would leave workers and a warning of theirs behind."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets no other thread handle signals
        return

    def terminate(_number: int, _frame: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _parse(args: list[str]) -> Command:
    """The command that the arguments mean; help and argument mistakes leave through SystemExit."""
    flags = (tyro.conf.FlagCreatePairsOff,)
    if args and args[0] in COMMANDS:
        return tyro.cli(COMMANDS[args[0]][0], prog=f"sbical {args[0]}", args=args[1:], config=flags)
    shown = tuple(Annotated[kind, subcommand(name, description=line)] for name, (kind, line) in COMMANDS.items())
    commands: Any = Union[shown]  # noqa: UP007  made at run time
    return tyro.cli(commands, prog="sbical", description=DESCRIPTION, args=args, config=flags)


def _short(errors: Console, fallback: Callable[..., None]) -> Callable[..., None]:
    """Our own warnings as one line for users; those of libraries as Python shows them."""

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
    ) -> None:
        if category.__module__.split(".")[0] == "sbical":
            errors.print(f"[yellow]warning:[/] {escape(str(message))}")
        else:
            fallback(message, category, filename, lineno, file, line)

    return show
