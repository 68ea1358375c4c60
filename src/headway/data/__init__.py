"""Layer 3: from files to tokens."""
