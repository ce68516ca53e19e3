"""`midfill refactor`: the commands over whole repositories. They are in files of their own; this one joins them."""

import typer

from midfill_infill.cli.refactor import generate, output, plan, review, write


def build() -> typer.Typer:
    group = typer.Typer(
        name="refactor",
        help="Fill holes of whole repositories: plan, generate, review, apply, verify, undo.",
        no_args_is_help=True,
        add_completion=False,
    )
    group.command("plan", cls=plan.PlanCommand)(plan.plan_command)
    group.command("recipes")(plan.recipes_command)
    group.command("generate")(generate.generate_command)
    group.command("merge")(generate.merge_command)
    group.command("review")(review.review_command)
    group.command("apply")(write.apply_command)
    group.command("verify")(write.verify_command)
    group.command("undo")(write.undo_command)
    group.command("status")(output.status_command)
    group.command("export")(output.export_command)
    group.command("check")(output.check_command)
    return group
