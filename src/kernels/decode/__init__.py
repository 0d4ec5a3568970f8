"""Decode attention over a paged, quantised KV cache: one query token per sequence, split over the sequence."""
