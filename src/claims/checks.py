"""Importing this module fills the register with every check."""

from adrbench.claims import (  # noqa: F401
    behaviour,
    cited,
    derived,
    detection,
    format,
    measured,
    source,
    source_backend,
    source_text,
)
