"""Directions in a latent space: move a vector, and the image changes in one way.

An autoencoder presses images through a few numbers. If the space is well organised, one direction means one property:
the difference of the means of two groups of images. We find the direction of "further right" and of "larger", move
vectors along them, decode, and measure what changed in the images.

Axes:  B images   Y X pixels   Z latent numbers
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from headway.figures import CurveChart, HeatMap, Plot
from headway.learn.experiment import curve, fit
from headway.learn.explanation import ExplanationStep, Formula, Question, ValueTable

FAST = {"training_steps": 3, "latent": 2}
SIDE = 16


def discs(amount: int) -> tuple[Tensor, Tensor]:
    """Soft discs, B (Y X), and their place from left to right, height and radius, B 3, in pixels."""
    facts = torch.rand(amount, 3) * torch.tensor([8.0, 8.0, 2.5]) + torch.tensor([4.0, 4.0, 1.5])
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    away = ((x - facts[:, 0, None, None]) ** 2 + (y - facts[:, 1, None, None]) ** 2).sqrt()
    return torch.sigmoid(2 * (facts[:, 2, None, None] - away)).flatten(1), facts


def measured(images: Tensor) -> Tensor:
    """Mean place from left to right, and mass, of each image, B 2."""
    pictures = images.clamp(min=0).unflatten(1, (SIDE, SIDE))
    mass = pictures.sum((1, 2)).clamp(min=1e-6)
    return torch.stack(((pictures.sum(1) * torch.arange(SIDE)).sum(1) / mass, mass), 1)


def direction(vectors: Tensor, fact: Tensor) -> Tensor:
    """From the mean of the lower third to that of the upper third, Z."""
    order, third = fact.argsort(), len(fact) // 3
    return vectors[order[-third:]].mean(0) - vectors[order[:third]].mean(0)


def steps(latent: int = 6, training_steps: int = 1500, width: int = 128) -> Iterator[ExplanationStep]:
    encode = nn.Sequential(nn.Linear(SIDE**2, width), nn.ReLU(), nn.Linear(width, latent))
    decode = nn.Sequential(nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, SIDE**2))
    model = nn.Sequential(encode, decode)

    def loss() -> Tensor:
        images, _ = discs(128)
        return (model(images) - images).square().sum(1).mean()

    fit(model, loss, training_steps, lr=2e-3)
    images, facts = discs(1024)
    with torch.no_grad():
        vectors = encode(images)
        error = float((decode(vectors) - images).square().sum() / (images - images.mean(0)).square().sum())
    yield ExplanationStep(
        "A narrow passage.",
        [f"Images of a disc, {SIDE}×{SIDE} = {SIDE**2} pixels, through {latent} numbers; {training_steps} steps."],
        [ValueTable("what is lost", ["share of the variance of 1,024 new images"], [[error]], ".4f")],
        question=Question("How many pixels stand for one latent number?", SIDE**2 / latent),
    )
    right, larger = direction(vectors, facts[:, 0]), direction(vectors, facts[:, 2])
    amounts = [-1.0, -0.5, 0.0, 0.5, 1.0]
    middle = vectors.mean(0)
    with torch.no_grad():
        moved = {
            name: decode(torch.stack([middle + amount * way for amount in amounts]))
            for name, way in (("right", right), ("larger", larger))
        }
    seen = {name: measured(pictures) for name, pictures in moved.items()}
    yield ExplanationStep(
        "Move the mean vector along a direction, and decode.",
        [
            "A direction is the difference of two means: of the images whose disc is furthest right and left, and of "
            "the largest and smallest discs. Measured in the decoded images: the mean place of the brightness, and "
            "its sum.",
        ],
        [
            ValueTable(
                f"moved {name}",
                ["by", "place from the left", "brightness"],
                [[f"{amount:g}", float(found[at, 0]), float(found[at, 1])] for at, amount in enumerate(amounts)],
                ".2f",
            )
            for name, found in seen.items()
        ],
        Formula("z′ = z + a (mean_A − mean_B)", r"z' = z + a\,(\mu_A - \mu_B)"),
        figure=Plot(
            "decoded images along two directions",
            [
                HeatMap(
                    f"{name} {amount:+g}",
                    picture.unflatten(0, (SIDE, SIDE)).tolist(),
                    [""] * SIDE,
                    [""] * SIDE,
                    limits=(0.0, 1.0),
                )
                for name, pictures in moved.items()
                for amount, picture in zip(amounts, pictures, strict=True)
            ],
            columns=5,
        ),
        question=Question(
            'Along "right" from −1 to 1, by how many pixels does the brightness move?',
            float(seen["right"][-1, 0] - seen["right"][0, 0]),
            tolerance=2.0,
        ),
    )
    cosine = float(torch.nn.functional.cosine_similarity(right, larger, 0))
    held = slice(0, 256)
    with torch.no_grad():
        shifts = [measured(decode(vectors[held] + amount * right))[:, 0].mean() for amount in amounts]
    yield ExplanationStep(
        "One direction for all images.",
        [
            "The same vector is added to 256 other images: their discs move too. Two properties that vary "
            "independently get directions that are nearly orthogonal.",
        ],
        [
            ValueTable(
                "mean place of 256 images",
                ["moved by", "place"],
                [[f"{a:g}", float(s)] for a, s in zip(amounts, shifts, strict=True)],
                ".2f",
            ),
            ValueTable("cosine of right and larger", ["cosine"], [[cosine]], ".3f"),
        ],
        figure=Plot(
            "place of the disc along the direction",
            [CurveChart("", [curve("mean of 256", amounts, [float(s) for s in shifts])], "moved by")],
        ),
        question=Question(
            "Is the cosine of the two directions, without its sign, below or above 0.5?",
            "below" if abs(cosine) < 0.5 else "above",
            ("below", "above"),
        ),
        conclusion=f"From −1 to 1 the mean place goes from {float(shifts[0]):.1f} to {float(shifts[-1]):.1f} "
        f"pixels; cosine of the two directions {cosine:.2f}.",
    )
