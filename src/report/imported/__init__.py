"""Results of other tools, kept as evidence of another provenance: shown beside this run, never part of a decision."""
