"""Scores: numbers from answers and references.  Nothing here knows a model."""
