"""Layer 3: checkpoints of other libraries, as tables that read both ways."""
