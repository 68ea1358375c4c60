"""Decoding steps by a small library in C, where it was built; headway.nn is its definition and fallback."""
