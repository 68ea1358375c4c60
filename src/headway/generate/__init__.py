"""Layer 4: text generation: one decoding loop for every decoder."""
