"""Layer 1: pure functions and frozen values on tensors."""
