"""Layer 4: one decoding loop for every model that writes."""
