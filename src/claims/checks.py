"""Importing this module fills the register with every check."""

from adrbench.claims import behaviour, cited, derived, format, measured, source, source_backend, source_text  # noqa: F401
