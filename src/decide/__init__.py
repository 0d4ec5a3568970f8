"""From evidence to a verdict: pure statistics in modules of their own, one declared rule, no I/O but the edges.

``percentiles``, ``intervals``, ``paired``, ``multiplicity`` and ``planning`` know nothing of vLLM;
``records`` reads evidence, ``comparable`` refuses comparisons, ``noise``, ``gates``, ``objective`` and
``status`` apply the decision file.
"""
