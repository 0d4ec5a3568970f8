"""Computes every number of every report again, from the raw files up, and names what differs."""
