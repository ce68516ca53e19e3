"""`midfill config`: shows every setting, its value and where that comes from; sets the user's own. Asks no engine."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from midfill_infill import config
from midfill_infill.cli.failures import report_failures
from midfill_infill.cli.options import complete_setting, complete_value
from midfill_infill.engines.endpoint import hide_password, parse_engine
from midfill_infill.engines.offer import print_where
from midfill_infill.engines.supervise import check_model
from midfill_infill.errors import MidfillError


def config_command(
    name: Annotated[str | None, typer.Argument(help="One setting.", autocompletion=complete_setting)] = None,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="VALUE", help="The value to store in your user file.", autocompletion=complete_value),
    ] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Remove it from your user file.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show every setting and where it comes from: flag, environment, project, user, default; or set one."""
    with report_failures(as_json=json_output):
        value = " ".join(values) if values else None
        if name is not None and name not in config.KEYS:
            raise MidfillError("bad_config", f"there is no setting {name!r}", f"known are {', '.join(config.KEYS)}")
        if name is not None and (value is not None or unset):
            if unset:
                value = None
            if name == "model" and value is not None:
                value = check_model(value)
            if name == "engine" and value is not None:
                print_where(parse_engine(value).remote_host)
            config.set_for_user(name, value)
        settings = config.load(Path.cwd())
        engine = settings["engine"]
        if engine.value is not None:  # a variable, or a file of an older version, may hold a password
            settings["engine"] = replace(engine, value=hide_password(str(engine.value)))
        shown = {key: setting for key, setting in settings.items() if name in (None, key)}
        if json_output:
            print(json.dumps({key: asdict(setting) for key, setting in shown.items()}, indent=2))
            return
        for key, setting in shown.items():
            origin: str = setting.source
            if setting.place:
                origin += f", {setting.place}"
            print(f"{key:<8} {_show(setting.value)}  ({origin})")
        if name is None:
            print(f"your file: {config.user_file()}; a project's: {config.PROJECT_FILE}; flags override all of them")


def _show(value: config.Value) -> str:
    """A value as a user writes it; "-" for none."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return " ".join(f"{number:g}" for number in value)
    return str(value)
