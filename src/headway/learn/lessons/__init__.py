"""Lessons: one file each, listed in `headway.learn.lesson`."""
