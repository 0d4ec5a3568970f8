"""Evidence in, ADRs out: ``collect`` turns evidence into a view, ``markdown`` turns a view into text."""
