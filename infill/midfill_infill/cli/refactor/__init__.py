"""`midfill refactor`: joins the commands over whole repositories. Knows nothing of what they do."""

from typing import Final

import typer

from midfill_infill.cli.lazy import Subcommand, make_group

SUBCOMMANDS: Final = {
    "plan": Subcommand("refactor.plan", "Find the holes of a repository and make a run of them."),
    "recipes": Subcommand("refactor.output", "List the recipes that `plan --recipe` knows, each with an example."),
    "generate": Subcommand("refactor.generate", "Fill the holes of a run."),
    "merge": Subcommand("refactor.generate", "Take the answers of shards into the run's journal."),
    "review": Subcommand("refactor.review", "Accept or reject fills one by one."),
    "apply": Subcommand("refactor.write", "Write accepted fills into their files, each file as a whole or not at all."),
    "verify": Subcommand(
        "refactor.write", "Run a command over a copy of the tree, and roll back only the fills it fails with."
    ),
    "undo": Subcommand("refactor.write", "Put back what stood there before `apply`: of a run, a file or a hole."),
    "status": Subcommand("refactor.output", "Show where the holes of a run stand."),
    "runs": Subcommand("refactor.output", "List the runs, the oldest first, or delete some."),
    "export": Subcommand("refactor.output", "Print what `apply` would write or has written."),
    "check": Subcommand("refactor.output", "Say what waits to be filled and what a run has not written."),
}
APP: Final = typer.Typer(
    name="refactor",
    cls=make_group(SUBCOMMANDS),
    help="Fill holes of whole repositories: plan, generate, review, apply, verify, undo.",
    no_args_is_help=True,
    add_completion=False,
    callback=lambda: None,
)
