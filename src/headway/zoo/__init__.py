"""Layer 3: one file per architecture, `Config` and `build`, and the table of published sizes."""
