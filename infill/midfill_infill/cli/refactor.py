"""`midfill refactor`: the commands over whole repositories. They are in files of their own; this one joins them."""

import typer

from midfill_infill.cli import refactor_generate, refactor_output, refactor_plan, refactor_review, refactor_write


def build_group() -> typer.Typer:
    group = typer.Typer(
        name="refactor",
        help="Fill holes of whole repositories: plan, generate, review, apply, verify, undo.",
        no_args_is_help=True,
    )
    group.command("plan", cls=refactor_plan.PlanCommand)(refactor_plan.plan_command)
    group.command("recipes")(refactor_plan.recipes_command)
    group.command("generate")(refactor_generate.generate_command)
    group.command("merge")(refactor_generate.merge_command)
    group.command("review")(refactor_review.review_command)
    group.command("apply")(refactor_write.apply_command)
    group.command("verify")(refactor_write.verify_command)
    group.command("undo")(refactor_write.undo_command)
    group.command("status")(refactor_output.status_command)
    group.command("export")(refactor_output.export_command)
    group.command("check")(refactor_output.check_command)
    return group
