"""Lists all errors that a user can cause, with title, next step and exit code. Knows no place that raises one."""

import errno
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Entry:
    """One row of the table. `next_step` continues the sentence that the message of an error begins."""

    title: str
    next_step: str
    exit_code: int


ASKED_WRONGLY, FILE_TROUBLE, ENGINE_TROUBLE, MODEL_TROUBLE, BROKEN_FILL, UNSOLVED = 2, 3, 4, 5, 6, 7
INTERRUPTED, INTERNAL = 130, 70
# `midfill refactor` has its own codes, so that a pipeline can tell a refusal from a failed test.
PENDING, SOME_FAILED, VERIFY_FAILED, REFUSED, DISK_TROUBLE = 1, 3, 4, 5, 6

TABLE: Final[dict[str, Entry]] = {
    # Usage.
    "bad_request": Entry("Invalid request", "see `midfill fill --help`", ASKED_WRONGLY),
    "not_heeded": Entry("The model cannot do this", "choose another model", ASKED_WRONGLY),
    "bad_position": Entry("Invalid position", "write LINE or LINE:COL, both counted from 1", ASKED_WRONGLY),
    "position_outside": Entry("Position outside the file", "give a line and column inside it", ASKED_WRONGLY),
    "no_hole": Entry(
        "Nothing to fill", "give FILE:LINE inside a function, --function NAME, --hole L:C-L:C or --stubs", ASKED_WRONGLY
    ),
    "ambiguous_hole": Entry(
        "More than one hole", "choose with FILE:LINE or --function NAME, or fill all with --stubs", ASKED_WRONGLY
    ),
    "overlapping_holes": Entry("Holes overlap", "give ranges that do not touch each other", ASKED_WRONGLY),
    "no_function": Entry("No such function", "name one as it is written in the file, or Class.method", ASKED_WRONGLY),
    "ambiguous_function": Entry("More than one function", "write Class.method, or give FILE:LINE", ASKED_WRONGLY),
    "no_stubs": Entry("No stubs", "give FILE:LINE, --function NAME or --hole L:C-L:C", ASKED_WRONGLY),
    "unknown_language": Entry(
        "Unknown language", "give --language, or select the text to fill with --hole L:C-L:C", ASKED_WRONGLY
    ),
    "hole_too_large": Entry("Hole too large", "select less text or lower --max-tokens", ASKED_WRONGLY),
    "bad_config": Entry("Invalid setting", "correct it; `midfill config` shows them all", ASKED_WRONGLY),
    "large_hole": Entry("Large hole", "give --yes to go on, or --hole L:C-L:C for less", ASKED_WRONGLY),
    # Results.
    "fill_broken": Entry("Fill with syntax errors", "try another --seed or -n 4, or give --allow-errors", BROKEN_FILL),
    "fill_doubtful": Entry("Fill that is a suggestion", "give --min-certainty 0 to write it anyway", BROKEN_FILL),
    # The command of `--until`.
    "until_failed": Entry("No candidate passes", "give more --tries, or a larger --model", UNSOLVED),
    "until_passes": Entry(
        "The command passes without a fill", "give a command that fails while the hole is open", ASKED_WRONGLY
    ),
    "until_unreached": Entry("No fill can help", "fix that first, or give another command", ASKED_WRONGLY),
    # The file.
    "file_missing": Entry("No such file", "check the path", FILE_TROUBLE),
    "file_is_directory": Entry("Not a file", "name one file inside it", FILE_TROUBLE),
    "file_unreadable": Entry("File cannot be read", "check its permissions", FILE_TROUBLE),
    "file_binary": Entry("Not a text file", "give a source file", FILE_TROUBLE),
    "file_encoding": Entry("Unknown text encoding", "save the file as UTF-8", FILE_TROUBLE),
    "file_too_large": Entry("File too large", "split it, or fill a smaller file", FILE_TROUBLE),
    "file_excluded": Entry("File excluded", "rename it, or change the exclusions", FILE_TROUBLE),
    "file_changed": Entry("File changed meanwhile", "run the command again", FILE_TROUBLE),
    "write_failed": Entry("File cannot be written", "check the permissions of the file and its folder", FILE_TROUBLE),
    "output_failed": Entry("Output cannot be written", "free some space and run the command again", FILE_TROUBLE),
    # The engine.
    "engine_missing": Entry("The engine is not installed", "run `pip install 'midfill[engine]'`", ENGINE_TROUBLE),
    "engine_failed": Entry("The engine did not start", "run `midfill doctor`", ENGINE_TROUBLE),
    "engine_died": Entry("The engine stopped", "run the command again: it starts a new engine", ENGINE_TROUBLE),
    "engine_stopped": Entry("The engine is stopped", "continue or end its process", ENGINE_TROUBLE),
    "engine_silent": Entry(
        "The engine does not answer", "end it with `midfill engine stop` and run the command again", ENGINE_TROUBLE
    ),
    "engine_busy": Entry("The engine is busy", "wait for the other fills and try again", ENGINE_TROUBLE),
    "engine_unreachable": Entry(
        "The engine does not answer", "check MIDFILL_ENGINE_URL, or unset it to use the local engine", ENGINE_TROUBLE
    ),
    "engine_refused": Entry("The engine refused the request", "check MIDFILL_TOKEN", ENGINE_TROUBLE),
    "engine_error": Entry("The engine failed", "see the engine's log, `midfill doctor` names it", ENGINE_TROUBLE),
    "out_of_memory": Entry("Out of memory", "use a smaller model, fewer alternatives or --device cpu", ENGINE_TROUBLE),
    "runtime_folder": Entry(
        "Runtime folder unusable", "set MIDFILL_RUNTIME_DIR to a folder that only you can enter", ENGINE_TROUBLE
    ),
    # The model.
    "unknown_model": Entry("Unknown model", "run `midfill models` to see the known ones", MODEL_TROUBLE),
    "fetch_failed": Entry("Model download failed", "run the command again: the download resumes", MODEL_TROUBLE),
    # The rest.
    "cancelled": Entry("Cancelled", "run the command again", INTERRUPTED),
    "internal": Entry("Internal error", "please report it with the text of this message", INTERNAL),
}
OF_REPOSITORIES: Final[dict[str, Entry]] = {
    "run_missing": Entry("No such run", "run `midfill refactor plan` first", ASKED_WRONGLY),
    "no_such_hole": Entry("No such hole", "see `midfill refactor export --format jsonl` for the holes", ASKED_WRONGLY),
    "bad_query": Entry("Invalid query", "capture the node to fill as @fill", ASKED_WRONGLY),
    "bad_recipe": Entry("No such recipe", "see `midfill refactor recipes`", ASKED_WRONGLY),
    "bad_selector": Entry("Invalid selector", "see `midfill refactor plan --help`", ASKED_WRONGLY),
    "bad_shard": Entry("Invalid shard", "write --shard I/N with 1 <= I <= N", ASKED_WRONGLY),
    "no_selector": Entry("Nothing selected", "give --stubs, --name, --query or --recipe", ASKED_WRONGLY),
    "nothing_planned": Entry(
        "No hole found", "select other code; `midfill refactor runs` lists the runs that there are", PENDING
    ),
    "ray_missing": Entry("Ray is not installed", "run `pip install 'midfill[ray]'`", ASKED_WRONGLY),
    "git_failed": Entry("Git failed", "run it in a git repository", ASKED_WRONGLY),
    "holes_failed": Entry("Some holes were not filled well", "see `midfill refactor status`", SOME_FAILED),
    "hole_stale": Entry("A hole is stale", "plan it again", SOME_FAILED),
    "verify_baseline": Entry(
        "The command fails without any fill", "make it pass first, or give another --command", REFUSED
    ),
    "verify_flaky": Entry("The command is flaky", "make it deterministic first", REFUSED),
    "sandbox_missing": Entry(
        "No sandbox", "install bubblewrap, or give --no-sandbox to run the command as you", REFUSED
    ),
    "tree_dirty": Entry("Uncommitted changes", "commit them, or give --allow-dirty", REFUSED),
    "tree_locked": Entry("Another process is writing", "wait until it ends", REFUSED),
    "target_refused": Entry("Refused to write", "leave it out of the plan", REFUSED),
    "undo_refused": Entry("Not undone", "undo it by hand", REFUSED),
    "run_damaged": Entry("The journal cannot be read", "the source files are not affected; plan again", DISK_TROUBLE),
    "run_version": Entry(
        "The run is of another version", "use the midfill that made it, or `runs --delete` it", DISK_TROUBLE
    ),
    "journal_failed": Entry("The journal cannot be written", "free some space and run the command again", DISK_TROUBLE),
    "disk_full": Entry("Disk full", "free some space and run the command again; no file is damaged", DISK_TROUBLE),
    "write_broken": Entry("A file cannot be written", "it is as it was; run the command again", DISK_TROUBLE),
    "write_unclear": Entry("A file was changed during a crash", "compare the two files and remove one", DISK_TROUBLE),
}
TABLE.update(OF_REPOSITORIES)

# Errors of one hole: other holes may be filled nevertheless.
OF_ONE_HOLE: Final = ("hole_too_large", "file_encoding", "file_binary", "overlapping_holes", "position_outside")
# Errors of a hole or of the engine: if many holes in a row have such an error, it is the engine's.
OF_HOLE_OR_ENGINE: Final = ("engine_error", "out_of_memory", "bad_request")


def is_disk_full(error: OSError) -> bool:
    """True if an error means that the disk, a quota or a file has no room for more."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def advise_on_space(error: OSError) -> str | None:
    """What to do if a disk, a quota or a file has no room for more; None after other errors."""
    if error.errno == errno.EFBIG:
        return "raise the limit that `ulimit -f` shows and run the command again"
    return "free some space and run the command again" if is_disk_full(error) else None


def _without_period(text: str) -> str:
    text = text.strip()
    return text if text.endswith("...") else text.removesuffix(".")


class MidfillError(Exception):
    """An error that a user can cause or must know of. `code` is a key of `TABLE`.

    `message` says what is wrong, without a period ("t.py has 12 lines, line 40 is outside"). `next_step` says what to
    do; without one, that of the table holds.
    """

    def __init__(self, code: str, message: str, next_step: str | None = None) -> None:
        assert code in TABLE, code
        super().__init__(message)
        self.code = code
        self.message = _without_period(message)
        self.next_step = _without_period(next_step or TABLE[code].next_step)

    @property
    def title(self) -> str:
        return TABLE[self.code].title

    @property
    def exit_code(self) -> int:
        return TABLE[self.code].exit_code

    @property
    def sentence(self) -> str:
        """The problem and the next step, on one line."""
        return " ".join(f"{self.message}; {self.next_step}.".split())

    def __str__(self) -> str:
        return self.sentence
