"""Configuration: pydantic models, loading with clear errors, policies, and the generated documents.

``load`` returns a validated ``Run``; everything else in the project takes values from it.
"""

from adrbench.config.files import ConfigError
from adrbench.config.load import Run, load
from adrbench.config.site import Site, load_site

__all__ = ["ConfigError", "Run", "Site", "load", "load_site"]
