"""What the backend does not serve, refused by name; imports nothing of vLLM."""

from __future__ import annotations

from typing import Any


def refuse(**features: Any) -> None:
    """Raise for the first feature that is in use.

    Raises:
        NotImplementedError: naming the feature.
    """
    for name, value in features.items():
        if value:
            raise NotImplementedError(f"backend CUSTOM does not serve {name.replace('_', ' ')} ({value})")
