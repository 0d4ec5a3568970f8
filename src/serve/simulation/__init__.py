"""Simulation of a KV-cache scheme inside a live vLLM: the paged cache is read after quantise-dequantise.

``attach`` patches the attention implementation that vLLM resolved, whatever it is, in the process that
computes. Two cases:

* A token's value depends on that token (and static scales) alone: keys and values are replaced as they
  are written (``engine.py``).
* It depends on the token's position or on the request's length (windows in 16 bit, groups of tokens):
  everything is written in 16 bit, and before attention reads, the tokens that leave a window in this
  step are replaced in the cache (``windows.py``; in decode steps on a GPU, where it can be, by one kernel:
  ``one_launch.py``).

Neither keeps anything per request: what a step replaces follows from the request's length before and
after it, so preempted requests and reused blocks need no care. Attention kernels see the state after the
step's write, for all of the step's queries.
"""
