"""Who asks a model about data: for its loss wherever the data says what is right, else for what it reads alone."""

from __future__ import annotations

from pathlib import Path

from headway.answer import Speaker
from headway.app import asking
from headway.app.inspect.alone import HeardAlone, ReadAlone
from headway.app.inspect.asked import AskedOfHidden, AskedOfRecords, AskedOfSamples, AskedOfTexts
from headway.app.inspect.calls import Asker
from headway.app.inspect.dictated import Dictated
from headway.app.inspect.handed import Handed
from headway.app.inspect.windows import WindowReader, reader_of
from headway.app.purpose import Data, Purpose
from headway.checkpoint import Loaded
from headway.data.kinds import Kind
from headway.data.whereabouts import is_table, pool_at, tables_of
from headway.errors import UserError
from headway.nn.masked_image import MaskedAutoencoder, MaskedImageModel
from headway.observer import Listener, Observer
from headway.tasks.hidden import HiddenPatches
from headway.tasks.labels import Labels, Tags
from headway.tasks.pairs import Pairs
from headway.tasks.sensed import SensedLabels
from headway.tasks.senses import Sight


def asker_for(loaded: Loaded, handed: Handed, folder: Path) -> Asker:
    """The way to ask the model in a folder about data."""
    answerer = loaded.answerer()
    match answerer:
        case Speaker() if answerer.way() != answerer.embed_each:
            return asked(loaded, *handed.fitted(loaded, folder))
        case Observer() if answerer.way() == answerer.classify:
            return asked(loaded, *handed.fitted(loaded, folder))
        case Observer() if answerer.way() in (answerer.write, answerer.transcribe) and described(handed):
            task = asking.described(loaded)
            if task is not None:
                return AskedOfSamples(handed.fitted(loaded, folder)[1], loaded, task)
        case Listener() if described(handed):
            return Dictated(handed.fitted(loaded, folder)[1], WindowReader(answerer))
        case _:
            pass
    return alone(loaded, handed)


def asked(loaded: Loaded, purpose: Purpose, data: Data) -> Asker:
    """As `headway eval` asks it."""
    if purpose.task is None:
        assert purpose.probe is not None
        return AskedOfTexts(data, loaded, purpose.probe(loaded))
    task = purpose.task(loaded)
    if isinstance(task, SensedLabels):
        return AskedOfSamples(data, loaded, task)
    assert isinstance(task, Pairs | Labels | Tags)
    return AskedOfRecords(data, loaded, task)


def described(handed: Handed) -> bool:
    """Whether the data says in words what is in its images or sounds: by a table, by their names, or as was told."""
    said = any((handed.task, handed.columns, handed.label_from))
    tables = any(is_table(path) or ((pool := pool_at(path)) and tables_of(pool)) for path in handed.paths)
    return (said or tables) and handed.first.kind not in (Kind.IMAGES, Kind.SOUNDS)


def alone(loaded: Loaded, handed: Handed) -> Asker:
    """For a model that gives vectors, and for sounds or images of which nothing is said."""
    if len(handed.paths) != 1:
        said = f"{len(handed.paths)} files or folders"
        raise UserError(said, allowed="one, where nothing says what is right")
    [path], reader = handed.paths, reader_of(loaded)
    if isinstance(reader, WindowReader):
        return HeardAlone(path, reader)
    if isinstance(loaded.model, MaskedAutoencoder | MaskedImageModel):
        sense = loaded.observer().sense
        assert isinstance(sense, Sight)
        return AskedOfHidden(path, loaded, HiddenPatches(sense))
    return ReadAlone(path, reader)
