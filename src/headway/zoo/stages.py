"""What networks in stages have in common: as many sizes of each kind as there are stages."""

from __future__ import annotations

from headway.errors import UserError


def check_stages(**sizes: tuple[int, ...]) -> None:
    """Refuses sizes that are not of the same stages."""
    if len({len(numbers) for numbers in sizes.values()}) != 1 or not all(sizes.values()):
        *most, last = (f"{name}={numbers}" for name, numbers in sizes.items())
        said = f"{', '.join(most)} and {last} are not of the same stages"
        raise UserError(said, allowed="as many numbers in each as there are stages")
    for name, numbers in sizes.items():
        if min(numbers) < 1:
            raise UserError(f"{name}={numbers}", allowed="1 or more in each stage")
