"""A generation job: prompts, memory and stopping criteria for the decoding loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headway.generate.beam import Beam, beam_search
from headway.generate.decoding import generate, stream
from headway.generate.request import Generated, Step
from headway.generate.rules import Rules
from headway.generate.sampling import Sampler
from headway.generate.speculative import Draft
from headway.generate.stopping import Stop
from headway.nn.context import EMPTY, Context
from headway.nn.trunk import Trunk


@dataclass(frozen=True, eq=False)
class Job:
    """Prompts for a model to go on from; `memory`, `bos` and the others are the arguments of `stream`."""

    model: Trunk
    prompts: list[list[int]]
    stop: Stop
    rules: Rules
    draft: Draft | None
    memory: Context = EMPTY
    bos: int | None = None

    def found(self, how: Sampler | Beam) -> list[list[Generated]]:
        """The continuations of each prompt, the best first; one, unless a beam is asked for more."""
        model, prompts, stop = self.model, self.prompts, self.stop
        if isinstance(how, Beam) and self.draft is None:
            return beam_search(model, prompts, how, stop, memory=self.memory, bos=self.bos, rules=self.rules)
        found = generate(
            model, prompts, how, stop, memory=self.memory, bos=self.bos, draft=self.draft, rules=self.rules
        )
        return [[one] for one in found]

    def steps(self, how: Sampler) -> Iterator[list[Step]]:
        """The new tokens of each prompt, as they come."""
        model, prompts, stop = self.model, self.prompts, self.stop
        return stream(model, prompts, how, stop, memory=self.memory, bos=self.bos, draft=self.draft, rules=self.rules)
