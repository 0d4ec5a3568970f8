"""Calibration of static scales from a small text, kept as run-time evidence and never written into weights."""
