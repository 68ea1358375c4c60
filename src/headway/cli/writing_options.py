"""The options of how a model writes, and what `headway generate --help` says of them task by task."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter

GENERATE = """\
Generate text with a model, and print it as it is generated.

Continue a text (GPT-2, Llama, Mistral, Mixtral, Phi-3, Qwen2):
  headway generate MODEL "Once upon a time" --max-new-tokens 100
  headway generate MODEL "Once upon a time" --temperature 0.8 --top-p 0.95
  headway generate MODEL "def area(r):" --stop $'\\n\\n' --lookup
  headway generate MODEL "Once upon a time" --draft SMALLER

Generate from a source text (Transformer, Marian, BART, T5, recurrent models):
  headway generate MODEL "Il fait beau." --beam 4
  headway generate MODEL "Il fait beau." --beam 8 --best 3 --length-penalty 1
  headway generate MODEL "summarize: ..." --lookup

Which decoding to use:
  (default)      greedy: the most probable token at each step; deterministic
  --temperature  sampling, for stories and dialogue
  --beam         beam search, for translations and summaries; printed at the end
  --lookup       speculative decoding by n-gram lookup in the text so far, for
                 outputs that repeat their source or themselves, such as code
  --draft        speculative decoding with a smaller model that has the same
                 tokenizer; not for recurrent models
  --stop         with all of these; the text before the stop string is printed
"""

LENGTH = Group("Length", sort_key=10)
DRAWING = Group("Sampling (default: greedy)", sort_key=11)
SEARCHING = Group("Beam search", sort_key=12)
GUESSING = Group("Speculative decoding (the same output, faster)", sort_key=13)


@Parameter(name="*")
@dataclass(frozen=True)
class Writing:
    """How a model writes.

    Parameters
    ----------
    max_new_tokens
        Maximum number of new tokens; by default the model's own, or 64.  Of a table, number of rows; by default 10.
    stop
        Stop string: generation ends before it; may be given several times.
    temperature
        Sampling temperature: below 1 favours probable tokens; 0 is greedy.
    top_k
        Top-k sampling: sample from the k most probable tokens.
    top_p
        Nucleus (top-p) sampling: sample from the smallest set of tokens with this total probability.
    min_p
        Min-p sampling: sample from tokens with at least this fraction of the highest probability.
    repetition_penalty
        Repetition penalty of tokens that already occur; 1 is none.
    seed
        Random seed of the sampling.
    beam
        Number of beams.
    length_penalty
        Length penalty: log-probabilities are divided by ((5 + length) / 6) to this power; 0.6 by default, 0 is none.
    best
        Number of hypotheses to print, with their scores.
    patient
        Search until no open beam can win, rather than until as many hypotheses as beams are complete.
    draft
        Draft model: the folder of a smaller model with the same tokenizer.
    lookup
        Draft by n-gram lookup in the text so far.
    """

    max_new_tokens: Annotated[int | None, Parameter(group=LENGTH, alias="--most")] = None
    stop: Annotated[tuple[str, ...], Parameter(group=LENGTH, show_default=False)] = ()
    temperature: Annotated[float | None, Parameter(group=DRAWING)] = None
    top_k: Annotated[int | None, Parameter(group=DRAWING)] = None
    top_p: Annotated[float | None, Parameter(group=DRAWING)] = None
    min_p: Annotated[float | None, Parameter(group=DRAWING)] = None
    repetition_penalty: Annotated[float, Parameter(group=DRAWING, alias="--repetition")] = 1.0
    seed: Annotated[int, Parameter(group=DRAWING)] = 0
    beam: Annotated[int | None, Parameter(group=SEARCHING)] = None
    length_penalty: Annotated[float | None, Parameter(group=SEARCHING)] = None
    best: Annotated[int | None, Parameter(group=SEARCHING)] = None
    patient: Annotated[bool, Parameter(group=SEARCHING)] = False
    draft: Annotated[Path | None, Parameter(group=GUESSING)] = None
    lookup: Annotated[bool, Parameter(group=GUESSING)] = False

    def arguments(self) -> dict[str, Any]:
        """The arguments of `generation_options`, but for the draft model."""
        return {name: value for name, value in asdict(self).items() if name != "draft"}

    def check(self) -> None:
        """Refuses what cannot be asked together, before a model is loaded."""
        from torch import nn

        from headway.tasks.generation import generation_options

        generation_options(**self.arguments(), draft=None if self.draft is None else nn.Identity())
