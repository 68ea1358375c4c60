"""The options of how a model writes, and what `headway generate --help` says of them task by task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from headway.errors import UserError

if TYPE_CHECKING:
    from headway.answer import Wish
    from headway.generate.beam import Beam

GENERATE = """\
Write with a model, and show the text as it is written.

Continue a text (GPT-2, Llama, Mistral, Mixtral, Phi-3, Qwen2):
  headway generate MODEL "Once upon a time" --most 100
  headway generate MODEL "Once upon a time" --temperature 0.8 --top-p 0.95
  headway generate MODEL "def area(r):" --stop $'\\n\\n' --lookup
  headway generate MODEL "Once upon a time" --draft SMALLER

Write from a source (Transformer, Marian, BART, T5, recurrent models):
  headway generate MODEL "Il fait beau." --beam 4
  headway generate MODEL "Il fait beau." --beam 8 --best 3 --length-penalty 1
  headway generate MODEL "summarize: ..." --lookup

What suits what:
  nothing      the likeliest token each time: exact, and the same each time
  drawing      stories and talk, where one text is as good as another
  --beam       translations and summaries: shown when the search has ended
  --lookup     answers that repeat their source or themselves, such as code
  --draft      any model that has a smaller one with the same tokens;
               not recurrent ones, which cannot take tokens back
  --stop       all of these; the text before it is shown
"""

LENGTH = Group("Where it ends", sort_key=10)
DRAWING = Group("Drawing (else the likeliest token is taken)", sort_key=11)
SEARCHING = Group("Searching", sort_key=12)
GUESSING = Group("Guessing ahead (the same answer, sooner)", sort_key=13)


@Parameter(name="*")
@dataclass(frozen=True)
class Writing:
    """How a model writes.

    Parameters
    ----------
    most
        New tokens at most; 64 unless the model's own settings tell.  Rows of a forecast; 10 unless given.
    stop
        End before this text; may be given several times.
    temperature
        Draw tokens by their probabilities, sharper below 1; 0 takes the likeliest.
    top_k
        Draw from the k likeliest tokens.
    top_p
        Draw from the fewest likeliest tokens that make up this probability.
    min_p
        Draw from the tokens at least this many times as likely as the likeliest.
    repetition
        Make tokens that were there before this many times less likely.
    seed
        The same seed draws the same tokens.
    beam
        Search with this many beams, for the likeliest whole answer.
    length_penalty
        Divide an answer's log-probability by ((5 + length) / 6) to this power; 0.6 unless given, 0 likes it short.
    best
        Show this many of the answers that the beams found, with their scores.
    patient
        Search until no open beam can win, rather than until as many answers as beams are found.
    draft
        The folder of a smaller model with the same tokens, to guess what comes next.
    lookup
        Guess that what followed the last words before follows them again.
    """

    most: Annotated[int | None, Parameter(group=LENGTH)] = None
    stop: Annotated[tuple[str, ...], Parameter(group=LENGTH, show_default=False)] = ()
    temperature: Annotated[float | None, Parameter(group=DRAWING)] = None
    top_k: Annotated[int | None, Parameter(group=DRAWING)] = None
    top_p: Annotated[float | None, Parameter(group=DRAWING)] = None
    min_p: Annotated[float | None, Parameter(group=DRAWING)] = None
    repetition: Annotated[float, Parameter(group=DRAWING)] = 1.0
    seed: Annotated[int, Parameter(group=DRAWING)] = 0
    beam: Annotated[int | None, Parameter(group=SEARCHING)] = None
    length_penalty: Annotated[float | None, Parameter(group=SEARCHING)] = None
    best: Annotated[int | None, Parameter(group=SEARCHING)] = None
    patient: Annotated[bool, Parameter(group=SEARCHING)] = False
    draft: Annotated[Path | None, Parameter(group=GUESSING)] = None
    lookup: Annotated[bool, Parameter(group=GUESSING)] = False

    def wish(self) -> Wish:
        """The wish that these options tell; any option of drawing asks to draw."""
        from headway.answer import Wish
        from headway.generate.sampling import Greedy, Sample
        from headway.generate.speculative import LookUp

        drawing = (self.temperature, self.top_k, self.top_p, self.min_p)
        self.check(draws=any(option is not None for option in drawing))
        if self.beam is not None:
            return Wish(self.search(), self.most, self.stop)
        draft = LookUp() if self.lookup else None
        if all(option is None for option in drawing):
            return Wish(Greedy(self.repetition), self.most, self.stop, draft=draft)
        temperature = 1.0 if self.temperature is None else self.temperature
        how = Sample(temperature, self.top_k, self.top_p, self.min_p, self.repetition, self.seed)
        return Wish(how, self.most, self.stop, draft=draft)

    def search(self) -> Beam:
        from headway.generate.beam import BEAM, Beam

        alpha = BEAM.alpha if self.length_penalty is None else self.length_penalty
        return Beam(self.beam or 1, alpha, self.best or 1, early=not self.patient)

    def check(self, draws: bool) -> None:
        """What cannot be wished together."""
        if self.most is not None and self.most < 1:
            raise UserError(f"--most {self.most}", allowed="1 or more")
        if self.draft is not None and self.lookup:
            raise UserError("--draft and --lookup both guess what comes next", do="give one of them")
        if self.beam is None:
            alone = {"--length-penalty": self.length_penalty, "--best": self.best, "--patient": self.patient or None}
            if named := [name for name, value in alone.items() if value is not None]:
                raise UserError(f"{named[0]} is for beams", do="give --beam too, as in --beam 4")
            return
        if draws:
            raise UserError("--beam searches and does not draw", do="give --beam, or --temperature and its like")
        if self.repetition != 1.0:
            raise UserError("--beam has no --repetition", do="leave one of them out")
        if self.draft is not None or self.lookup:
            raise UserError("--beam follows many answers and cannot guess ahead", do="leave --draft and --lookup out")
