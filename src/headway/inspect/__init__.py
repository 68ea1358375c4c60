"""Layer 4: numbers about attention, and about what models hold."""
