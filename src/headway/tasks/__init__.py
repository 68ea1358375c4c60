"""What models learn, and how well they do it."""
