"""Opens the engine of a fill, and completes the fill's options by what settings, engine and file say."""

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


def read_options(flag: config.Quality = None, **chosen: Any) -> Options:
    """The options of a fill: the chosen ones, and quality and seconds by the settings of the folder in which the user
    works; a quality that is given as `flag` comes first.
    """
    seconds, is_set = config.choose_seconds(Path.cwd())
    presets: list[Wish] = []
    if flag is None:
        presets.append("quality")  # even if no setting has one: then nothing is asked
    if is_set:
        presets.append("seconds")
    quality = config.choose_quality(flag, Path.cwd())
    return Options(quality=quality, seconds=seconds, presets=tuple(presets), **chosen)


@contextmanager
def open_engine(
    document: Document, settings: EngineSettings, options: Options, note: supervise.Progress
) -> Iterator[tuple[EngineClient, Options]]:
    """Yields a client of the engine, and `options` with related files and the lines that Midfill wrote and nobody has
    accepted. For an engine that the user names, the model of `settings` replaces that of `options`, even by None.

    Starts the engine if none runs; `note` is called with a message about work that takes long. Raises MidfillError.
    """
    endpoint = supervise.ensure_engine(settings, note)
    offer.print_where(endpoint.remote_host)
    # An engine that Midfill starts has one model, others may have several.
    model = options.model if endpoint.url is None else settings.model
    with EngineClient(endpoint) as client:
        references: tuple[Reference, ...] = ()
        # The project of the file, wherever the user works, says whether its files are shown.
        if document.path and config.shows_related(document.path.absolute().parent):
            references = find_references(document, document.path)
        yield client, replace(options, model=model, references=references, written=written.load())
