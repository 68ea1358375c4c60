"""A task of your own in one file: regression, a number for each word of a text."""

import random

import torch
import torch.nn.functional as F

import headway
from headway.metrics.scores import MEASURES, Measure, Scores
from headway.tasks import base, model_parts, results, text_tasks, text_tracing, tracing
from headway.tasks.tagging import Tagging, split_words
from headway.tasks.text_classification import NO_TARGET

MEASURES["mean_error"] = Measure("mean error", higher=False)


class WordRegression(Tagging):
    """Predict a number from 0 to 99 for each word; records and batches are those of tagging, in hundredths."""

    name, goal, does = "word-regression", "a number for each word", "gives each word a number"
    max_id = 10_000

    @classmethod
    def from_data(cls, splits, recipe, start):
        framing = text_tasks.Framing(bos=True, eos=True)
        tokenizer, chosen = text_tasks.one_tokenizer(recipe, splits, start, "words", framing)
        return base.TaskSetup(cls(tokenizer, ()), tokenizer, tokenizer, chosen, classes=1, head="tokens")

    @classmethod
    def from_model(cls, parts):
        return cls(model_parts.required_tokenizer(parts), ())

    def encode(self, fields):
        """Ids, and for each one more than its number in hundredths, or 0 where it has none."""
        for text, numbers in fields:
            read = split_words(text.split(), self.tokenizer)
            wanted = dict(zip(read.firsts, map(float, numbers.split()), strict=True))
            yield [read.ids, [1 + round(100 * wanted[at]) if at in wanted else 0 for at in range(len(read.ids))]]

    def numbers(self, model, batch):
        """What the model says and what is right, for each word."""
        known = batch.wanted != NO_TARGET
        return batch.logits(model)[known, 0], batch.wanted[known] / 100

    def loss(self, model, batch):
        return F.mse_loss(*self.numbers(model, batch), reduction="sum")

    @torch.inference_mode()
    def evaluate(self, model, records, options=None):
        found, wanted = self.numbers(model, self.batch(model, list(records)))
        return results.EvalResult(Scores({"mean_error": (found - wanted).abs().mean().item()}, len(found), "words"))

    @torch.inference_mode()
    def predict(self, model, inputs, options=None):
        for text in inputs:
            numbers = self.trace(model, text, options).call().tolist()
            yield results.TaggedWords(text, tuple(zip(text.split(), [f"{x:.1f}" for x in numbers], strict=True)))

    def trace(self, model, input, options):
        read = split_words(input.split(), self.tokenizer)
        axes = text_tracing.text_axes(read.ids, self.tokenizer)
        shown = tracing.NumericOutcome(lambda numbers: " ".join(f"{x:.1f}" for x in numbers.tolist()))
        return tracing.TracedRun(model, lambda: model(torch.tensor([read.ids]))[0, read.firsts, 0], shown, axes)


def records(count, seed):
    """The number of a word is how many characters it has; every word after `half` counts half."""
    draw = random.Random(seed)
    texts = [draw.choices(["ox", "cat", "bird", "horse", "half"], k=draw.randint(3, 6)) for _ in range(count)]
    numbers = [[len(w) / (1 + ("half" in words[:at])) for at, w in enumerate(words)] for words in texts]
    return [(" ".join(words), " ".join(map(str, row))) for words, row in zip(texts, numbers, strict=True)]


def main():
    settings = {"train.steps": 200, "train.lr": 3e-3, "train.dropout": 0.0, "model.layers": 2, "model.dim": 64}
    model = headway.train(records(600, 0), task=WordRegression, out="numbers", quiet=True, **settings)
    print(model.predict("horse half horse cat").to_text())
    found = headway.evaluate(model, records(100, 1))
    print(found.to_text())
    assert found.scores.numbers["mean_error"] < 0.5
    recording = headway.load("numbers", task=WordRegression).attend("horse half horse cat")
    print(recording.outcome.text, "by attention at", ", ".join(recording.sites))
    recording.save("numbers.html")


if __name__ == "__main__":
    main()
