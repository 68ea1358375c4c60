"""From what was asked to a run that can begin: the data is looked at, open choices are made, and each is told.

A resolved recipe has no choice left: the same recipe, data and number of threads make the same run, bit for bit.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from headway.app.settings.recipe import Asked, preset_values, resolve
from headway.app.training import choose
from headway.app.training.crafts import Craft, check_suited, craft_of
from headway.app.training.fit import Need, config_for, known_sizes
from headway.app.training.material import Material, material
from headway.app.training.prepare import Prepared, Shelf, prepare_records, prepare_series, prepare_texts
from headway.app.training.ready import LONGEST, Ready, given
from headway.app.training.reuse import Encoder, Taken, encoder_of, reused, take_over, taken
from headway.checkpoint import Loaded, load
from headway.data.digest import digest
from headway.data.keyed import keyed
from headway.data.kinds import STREAMED, Kind
from headway.errors import UserError
from headway.tasks.task import RecordTask, StreamTask
from headway.train.groups import ENCODER
from headway.train.recipe import Recipe, flat, from_flat
from headway.zoo.build import architecture, architecture_of, config_of
from headway.zoo.cost import cost
from headway.zoo.presets import PRESETS, preset

EVALUATIONS = 10  # of a run, the last at its end
NUMBERS = 2**31  # what a row of images or sounds may hold: the bytes of a name, and how long a sound is


@dataclass(frozen=True, eq=False)
class Plan:
    """All that a run is made of."""

    recipe: Recipe
    material: Material
    ready: Ready
    prepared: Prepared
    config: Any
    start: Loaded | None = None
    part: Encoder | None = None  # what of `start` is reused

    @property
    def architecture(self) -> str:
        return architecture_of(self.config)

    @property
    def example(self) -> str | None:
        """A file of the data that the model can be tried with; None where a record of it is what to try."""
        return str(self.material.files[0]) if self.material.kind is Kind.FORECAST else None

    def shape(self) -> nn.Module:
        """The model with whatever weights it is drawn with."""
        return architecture(self.architecture).build(self.config)

    def build(self) -> nn.Module:
        """The model with its first weights: drawn by the seed, or those of the model that it goes on from."""
        torch.manual_seed(keyed(self.recipe.seed, "weights"))
        model = self.shape()
        if found := self.taken(model):
            take_over(model, found)
        return model

    def taken(self, model: nn.Module) -> Taken | None:
        """What a model of this plan takes over from the one that it goes on from."""
        return taken(model, self.start, self.part, self.ready.task) if self.start and self.part else None


def plan(asked: Asked, scratch: Path | None = None) -> Plan:
    """All that follows from what was asked.  With `scratch`, what is prepared on disk is prepared there."""
    draft = resolve(asked)
    if not draft.data.path and draft.data.source is None:
        do = "headway train FILE, or headway train dates, the embedded data set"
        raise UserError("headway train needs data", do=do)
    data, start = material(draft), started(draft)
    if data.embedded and start is None and draft.model.preset is None:
        draft = resolve(asked, choose.DATES)
    if start is not None and draft.model.preset is not None:
        said = f"--preset {draft.model.preset} with --from {draft.model.start}, which is a model already"
        raise UserError(said, do="leave one of them out")
    craft = craft_for(draft, data, start)
    part = reused(start, craft.architectures, craft.told(data.kind)) if start else None
    made = craft.ready(draft, data, start)
    longest = longest_of(draft, made)
    key = digest((), data.digest, repr(made.task), *words_told(made), str((draft.seed, draft.data.held_out, longest)))
    prepared = prepared_for(made, data, draft.seed, longest, Shelf(key, scratch))
    for skipped, read in ((data.skipped, data.train), (data.held_skipped, data.held)):
        if skipped is not None and not skipped.counts:  # where all was in the cache, nobody has read it yet
            deque(read(), maxlen=0)
    return replace(finished(asked, draft, data, craft, made, part, prepared), start=start)


def finished(
    asked: Asked, draft: Recipe, data: Material, craft: Craft, made: Ready, part: Encoder | None, prepared: Prepared
) -> Plan:
    """The plan, once there are tokens to count."""
    threads = given(draft.train.threads, torch.get_num_threads())
    longest = longest_of(draft, made)
    minutes = given(draft.train.minutes, choose.MINUTES)
    name = draft.model.preset
    if name is None and part is None:
        name = rung(data, craft, made, prepared, minutes, threads)
    if name is not None:
        check_suited(name, data.kind, craft)
        asked.check_sizes(known_sizes(PRESETS[name].architecture, PRESETS[name].sizes))
    values = {**preset_values(name), **(choose.DATES if data.embedded else {})} if name and not part else {}
    recipe = resolve(asked, values)
    config = fitting(recipe, data, made, part, longest)
    recipe = settled(recipe, data, craft, made, config, prepared, threads)
    return Plan(recipe, data, made, prepared, config, part=part)


def prepared_for(made: Ready, data: Material, seed: int, longest: int, shelf: Shelf) -> Prepared:
    if data.kind in STREAMED:
        task = cast(StreamTask, made.task)
        prepare = prepare_texts if data.kind is Kind.TEXTS else prepare_series
        return prepare(task, data, seed, task.stride(longest), shelf)
    known = [words.vocab for words in (made.reader, made.writer) if words]
    vocab = NUMBERS if made.needs else max(made.classes + 1, *known)
    return prepare_records(cast(RecordTask, made.task), data, seed, vocab, shelf)


def fitting(recipe: Recipe, data: Material, made: Ready, part: Encoder | None, longest: int) -> object:
    need = Need(made.reader, made.writer, longest, made.classes, made.needs)
    if part is None:
        name = PRESETS[cast(str, recipe.model.preset)].architecture
        return config_for(name, recipe.model.sizes, need, data.kind, recipe.train.dropout)
    told = {field.name: getattr(part.config, field.name) for field in fields(part.config)}
    if recipe.train.dropout is not None:
        told.pop("embed_dropout", None)
    told |= recipe.model.sizes
    new_words = "data.tokenizer" in made.chosen  # the model had none
    same = () if new_words else ("vocab", "source_vocab", "target_vocab", "context", "tied")
    kept = {name: told[name] for name in same if name in told}
    made_config = config_for(part.architecture, told, need, data.kind, recipe.train.dropout)
    return replace(cast(Any, made_config), **kept)


def settled(
    recipe: Recipe, data: Material, craft: Craft, made: Ready, config: Any, prepared: Prepared, threads: int
) -> Recipe:
    """The recipe with every choice made."""
    train, tokens, pace = recipe.train, prepared.tokens, choose.PACES[prepared.unit]
    batch = given(train.batch, made.chosen.get("train.batch", choose.batch_for(tokens, pace)))
    update = batch * train.accumulate
    steps = train.steps
    if steps is None and train.epochs is not None:
        steps = steps_of(train.epochs, tokens, update)
    if steps is None and train.minutes is None:
        steps = choose.steps_for(weights_of(config, prepared.unit), tokens, update, threads, pace)
    chosen = {
        "data.task": data.kind.value,
        "data.objective": craft.objective,
        "data.longest": longest_of(recipe, made),
        "train.steps": steps,
        "train.epochs": None,
        "train.batch": batch,
        "train.rate": given(train.rate, choose.rate_for(config_dim(config), tuned(recipe))),
        "train.threads": threads,
        "out": given(recipe.out, free(Path(f"{data.name.split('.')[0]}-model"))),
        **made.chosen,
    }
    recipe = from_flat({**flat(recipe), **chosen})
    return recipe if steps is None else paced(recipe, steps)


def tuned(recipe: Recipe) -> bool:
    """Whether weights are moved that know something already: where only a new head learns, they are not."""
    return recipe.model.start is not None and recipe.model.freeze != (ENCODER,)


def paced(recipe: Recipe, steps: int, evaluations: int = EVALUATIONS) -> Recipe:
    """The recipe for so many steps, with what is counted in them."""
    train = recipe.train
    chosen = {
        "train.steps": steps,
        "train.minutes": None,
        "train.warmup": given(train.warmup, min(steps // 10, 2000)),
        "train.evaluate_every": given(train.evaluate_every, -(-steps // evaluations)),
        "train.checkpoint_every": given(train.checkpoint_every, max(1, steps // 20)),
        "train.log_every": given(train.log_every, max(1, steps // 100)),
    }
    return from_flat({**flat(recipe), **chosen})


def steps_of(epochs: float, tokens: int, update: int) -> int:
    """The steps that read so many tokens so often, at `update` of them in each."""
    return max(1, round(epochs * tokens / update))


def craft_for(draft: Recipe, data: Material, start: Loaded | None) -> Craft:
    """How the data is learned from: as asked, or as the model does that was asked for."""
    if start is not None:
        inner = encoder_of(start).architecture
        craft = craft_of(data, draft.data.objective, inner)
        # what the whole model alone can learn, as a CLIP captions
        return craft if inner in craft.architectures else craft_of(data, draft.data.objective, start.architecture)
    name = preset(draft.model.preset).architecture if draft.model.preset else None
    return craft_of(data, draft.data.objective, name)


def rung(data: Material, craft: Craft, made: Ready, prepared: Prepared, minutes: float, threads: int) -> str:
    """The preset that the data and the time allow."""
    need = Need(made.reader, made.writer, LONGEST, made.classes, made.needs)
    sizes = list[choose.Size]()
    for name in craft.ladder:
        one = preset(name)
        config = config_for(one.architecture, one.sizes, need, data.kind, None)
        sizes.append(choose.Size(name, weights_of(config, prepared.unit)))
    return choose.rung(sizes, prepared.tokens, minutes, threads, choose.PACES[prepared.unit])


def weights_of(config: Any, unit: str) -> int:
    """The parameters that each token meets, all but tables that are looked up; or how often an image meets any."""
    if unit != "tokens":
        costs = cost(config)
        return (costs.total.flops if unit == "images" else costs.per_token(costs.total.flops)) // 2
    with torch.device("meta"):
        model = architecture(architecture_of(config)).build(config)
    tables = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    return sum(weight.numel() for weight in model.parameters() if id(weight) not in tables)


def config_dim(config: Any) -> int:
    encoder = getattr(config, "encoder", None)
    if encoder and not hasattr(config, "dim"):  # a model that is an encoder and little else
        return config_dim(config_of(encoder) if isinstance(encoder, str) else encoder)
    return max(getattr(config, "dim", 0), getattr(config, "hidden", 0) if hasattr(config, "cell") else 0)


def longest_of(recipe: Recipe, made: Ready) -> int:
    """Tokens of a row at most: as asked, as chosen by the data, or as usual."""
    return made.chosen.get("data.longest", given(recipe.data.longest, LONGEST))


def words_told(made: Ready) -> list[str]:
    return [words.backend.to_str() for words in (made.reader, made.writer) if words]


def started(draft: Recipe) -> Loaded | None:
    return None if draft.model.start is None else load(draft.model.start)


def free(folder: Path) -> Path:
    """A name that nothing has yet."""
    names = (folder if number == 1 else folder.with_name(f"{folder.name}-{number}") for number in range(1, 10**6))
    return next(name for name in names if not name.exists())
