"""Reports the special tokens around a published checkpoint's text. Knows its files; computes nothing.

The tokenizer takes precedence over config.json. Disagreements are logged: some published files are wrong (Dream-v0's
config.json has its eos as bos).
"""

import logging
from typing import Final

from midfill_engine.checkpoint_files import CheckpointFiles
from midfill_engine.loading.runtime import Runtime

ROLES: Final = ("bos", "eos")

logger = logging.getLogger(__name__)


def find_disagreements(files: CheckpointFiles) -> list[str]:
    """One sentence for each role that tokenizer and configuration give to different tokens."""
    found = []
    for role in ROLES:
        named, numbers = files.named_by_tokenizer(role), files.numbers(f"{role}_token_id")
        if named is not None and numbers and named not in numbers:
            found.append(
                f"its tokenizer has {_name(files, named)} as {role}, its config.json {_name(files, numbers[0])}: "
                "the tokenizer's is taken"
            )
    return found


def describe(runtime: Runtime) -> str:
    """The tokens around a request's text, the mask token, and the tokens that end a hole."""
    files, tokens = runtime.loaded.files, runtime.tokens
    parts = {
        "before the text": tokens.opening(None),
        "behind it": tokens.closing,
        "masks": [tokens.mask_id],
        "ends or shortens a hole": tokens.delete_ids,
        "lengthens it": [] if tokens.expand_id is None else [tokens.expand_id],
    }
    names = {what: ", ".join(_name(files, one) for one in ids) for what, ids in parts.items()}
    return "; ".join(f"{what}: {found or 'nothing'}" for what, found in names.items())


def report_roles(runtime: Runtime) -> None:
    """Logs `describe`, and a warning for every disagreement."""
    logger.info("%s: %s", runtime.names[0], describe(runtime))
    for sentence in find_disagreements(runtime.loaded.files):
        logger.warning("%s: %s", runtime.names[0], sentence)


def _name(files: CheckpointFiles, index: int) -> str:
    text = next((text for text, number in files.added_tokens.items() if number == index), "unnamed")
    return f"{text} ({index})"
