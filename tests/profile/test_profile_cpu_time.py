"""Processor time of a server's processes."""

import os
import subprocess
import sys

import pytest
from adrbench.profile.cpu_time import busiest, descendants, sampler
from waiting import until


def test_descendants_are_those_of_the_process_only():
    table = {1: ("init", 0, 0), 5: ("a", 1, 0), 6: ("b", 5, 0), 7: ("c", 6, 0), 8: ("other", 1, 0)}
    assert descendants(table, 5) == {5, 6, 7}


def test_the_busiest_process_is_the_worker():
    first, middle, last = {1: 0.0, 2: 10.0}, {1: 0.5, 2: 13.0}, {1: 0.6, 2: 14.0, 3: 99.0}
    assert busiest(first, middle, last) == (3.0, 1.0)


@pytest.mark.parametrize(
    ("first", "middle", "last"), [({}, {}, {}), ({1: 1.0}, {1: 1.0}, {1: 1.0}), ({1: 1.0}, {}, {1: 2.0})]
)
def test_without_samples_there_is_no_time(first, middle, last):
    assert busiest(first, middle, last) is None


def test_a_real_process_is_measured_with_its_children():
    """A child that computes for a while; the parent sleeps."""
    work = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nprint(1, flush=True)"
    code = f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {work!r}])\ntime.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert parent.stdout.read(1) == b"1"
        sample = sampler(parent.pid)
        assert os.getpid() not in sample()
        assert until(lambda: sum(sample().values()) >= 0.25)
    finally:
        parent.kill()
        parent.wait()
