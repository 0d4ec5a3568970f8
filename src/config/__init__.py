"""Configuration: pydantic models, loading with clear errors, policies, and the generated documents.

``load`` returns a validated ``Run``; everything else in the project takes values from it.
"""

from adrbench.config.load import ConfigError, Run, load

__all__ = ["ConfigError", "Run", "load"]
