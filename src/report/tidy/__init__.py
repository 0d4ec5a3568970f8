"""Tidy tables: one row an observation, documented columns with units, as CSV and Parquet."""
