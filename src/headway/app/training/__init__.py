"""From a recipe and data to a run that can begin, and what is said of it."""
