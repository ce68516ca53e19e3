"""What the command `midfill` offers: its subcommands and common options. Knows none of their work."""

from typing import Annotated

import typer

from midfill_infill.cli import configuration, doctor, engine, fill, lsp, models, refactor, serve


def build_app() -> typer.Typer:
    app = typer.Typer(
        name="midfill",
        help="Fills gaps in code with a local diffusion language model that sees the code before and after.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    app.command("fill", cls=fill.FillCommand)(fill.fill_command)
    app.add_typer(refactor.build_group())
    app.command("serve")(serve.serve_command)
    app.add_typer(models.build_group(), name="models")
    app.add_typer(engine.build_group(), name="engine")
    app.command("config")(configuration.config_command)
    app.command("doctor")(doctor.doctor_command)
    passed_on = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command("lsp", context_settings=passed_on)(lsp.lsp_command)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from midfill_infill.engines.installed import distribution_version

        typer.echo(f"midfill {distribution_version()}")
        raise typer.Exit()


def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Fills gaps in code with a local diffusion language model that sees the code before and after."""
