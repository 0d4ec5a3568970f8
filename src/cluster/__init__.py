"""The queue: a run watched from start to end, so that none of its jobs is left, lost or run twice."""
