"""The command line: ``sbical calibrate | plan | infer | report | export | list | show``.

Exit codes: 0 done (whatever the verdict says), 2 a mistake that one message explains, 130 interrupted.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, TextIO

import tyro
from rich.console import Console
from rich.markup import escape
from tyro.conf import subcommand

from sbical.cli.catalog import List, Show
from sbical.cli.run import Calibrate, Infer, Plan
from sbical.cli.saved import Export, Report
from sbical.errors import SbicalError

Command = (
    Annotated[Calibrate, subcommand("calibrate")]
    | Annotated[Plan, subcommand("plan")]
    | Annotated[Infer, subcommand("infer")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Export, subcommand("export")]
    | Annotated[List, subcommand("list")]
    | Annotated[Show, subcommand("show")]
)

DESCRIPTION = """\
Learn what a robot's simulator gets wrong, from logs of the robot: a joint posterior over friction, inertia, actuation, \
delays and sensor noise, with a verdict on how far to trust it and calibrated domain-randomization ranges.

First steps: "sbical list", "sbical show servo_pendulum", "sbical calibrate servo_pendulum --prior hobby_servo"."""

#: Width of tables where no terminal says how wide it is.
PIPE_WIDTH = 120


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; argument mistakes exit with code 2 through SystemExit."""
    command = tyro.cli(
        Command,  # pyright: ignore[reportArgumentType]  a union of annotated dataclasses, which tyro takes
        prog="sbical",
        description=DESCRIPTION,
        args=args,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _short(errors, warnings.showwarning)
            command.run(console)
    except SbicalError as error:
        errors.print(f"[bold red]error:[/] {escape(str(error))}")
        return 2
    except KeyboardInterrupt:
        errors.print("interrupted; nothing was written")
        return 130
    return 0


def _short(errors: Console, fallback: object):  # noqa: ANN202  the type of warnings.showwarning has no name
    """Our own warnings as one line for users; those of libraries as Python shows them."""

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
    ) -> None:
        if category.__module__.split(".")[0] == "sbical":
            errors.print(f"[yellow]warning:[/] {escape(str(message))}")
        else:
            fallback(message, category, filename, lineno, file, line)  # pyright: ignore[reportCallIssue]

    return show
