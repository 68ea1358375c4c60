"""From what a person gave to a recipe."""
