"""Layer 7: one input as a model read it, in the coordinates of that input, and the page of it."""
