"""Augmentation and preprocessing of images and sounds: frozen values, called with the random generator they use."""
