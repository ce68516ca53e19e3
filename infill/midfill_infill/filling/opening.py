"""Opens the engine of a fill, and completes the fill's options by what settings, engine and file say."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from midfill_engine.wire import Wish
from midfill_infill import config
from midfill_infill.context.references import Reference, find_references
from midfill_infill.engines import offer, supervise
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.supervise import EngineSettings
from midfill_infill.filling import written
from midfill_infill.filling.fill import Options
from midfill_infill.text.document import Document


def read_options(quality: config.Quality = None, **chosen: Any) -> Options:
    """The options of a fill: the chosen ones, and what the settings say about quality and seconds."""
    seconds, is_set = config.choose_seconds(Path.cwd())
    presets: list[Wish] = []
    if quality is None:
        presets.append("quality")
    if is_set:
        presets.append("seconds")
    used_quality = config.choose_quality(quality, Path.cwd())
    return Options(quality=used_quality, seconds=seconds, presets=tuple(presets), **chosen)


@contextmanager
def open_engine(
    document: Document, settings: EngineSettings, options: Options, note: supervise.Progress
) -> Iterator[tuple[EngineClient, Options]]:
    """Yields a client of the engine, and `options` with related files and the lines of Midfill that nobody accepted;
    for an engine that the user names, with the model of `settings` too.

    Starts the engine if none runs; `note` is called with a message about work that takes long. Raises MidfillError.
    """
    endpoint = supervise.ensure_engine(settings, note)
    warning = offer.tell_where(endpoint.remote_host)
    if warning is not None:
        print(f"midfill: {warning}", file=sys.stderr)
    # An engine that Midfill starts has one model, others may have several.
    model = options.model if endpoint.url is None else settings.model
    with EngineClient(endpoint) as client:
        file = document.path.absolute() if document.path else Path.cwd()
        references: tuple[Reference, ...] = ()
        if config.shows_related(file.parent):
            references = find_references(document, document.path)
        yield client, replace(options, model=model, references=references, written=written.load())
