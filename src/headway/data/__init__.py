"""Layer 3: from files to records, tokens and arrays."""
