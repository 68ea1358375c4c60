"""Benchmarks: headway and its peers on the same weights and inputs, in turn (`headway bench`)."""
