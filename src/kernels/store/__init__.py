"""Quantise key and value rows into a paged cache, and load them back."""
