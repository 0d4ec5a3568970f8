"""Lets the tests of this folder import its helper module by name."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def world(tmp_path):
    from decide_synthetic import World

    return World(tmp_path)
