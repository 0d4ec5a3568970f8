"""Simulation of a KV-cache scheme inside a live vLLM: the paged cache is read after quantise-dequantise."""
