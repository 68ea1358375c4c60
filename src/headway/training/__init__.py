"""Layer 4: training: the step, its schedule, and checkpoints that survive anything."""
