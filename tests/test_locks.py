"""Who works in a folder: this host's run, another host's, or one that was killed."""

from __future__ import annotations

import json
import os
import platform
import time

import pytest
from adrbench import locks


def owner(folder, content: bytes) -> None:
    (folder / locks.OWNER).parent.mkdir(exist_ok=True)
    (folder / locks.OWNER).write_bytes(content)


def test_a_fresh_run_of_another_host_is_seen_and_a_stale_one_is_not(tmp_path):
    assert locks.other_host(tmp_path) is None
    owner(tmp_path, json.dumps({"host": "another", "pid": 1}).encode())
    with pytest.raises(SystemExit, match="host another works here"):
        locks.refuse_if_used(tmp_path)
    stale = time.time() - locks.FRESH_S - 1
    os.utime(tmp_path / locks.OWNER, (stale, stale))
    assert locks.other_host(tmp_path) is None
    owner(tmp_path, json.dumps({"host": platform.node(), "pid": 1}).encode())
    assert locks.other_host(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b'{"ho', b"[]", b"{}", b"1", b"\xff", b"null"])
def test_a_damaged_file_of_an_owner_stops_no_run(tmp_path, content):
    owner(tmp_path, content)
    assert locks.other_host(tmp_path) is None
    locks.refuse_if_used(tmp_path)
    assert locks.free(tmp_path) is False
