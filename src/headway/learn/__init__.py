"""Lessons: formulas worked through with numbers that the library computes."""
