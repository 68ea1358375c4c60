"""Layer 2: the parts that models are made of."""
