"""Teacher-forced agreement of an arm with the baseline: the same text, position by position."""
