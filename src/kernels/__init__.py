"""Our Triton kernels for the KV cache, the formats they store, and the checks that prove them.

One folder per operation: ``reference.py`` (torch, fp32), ``kernel.py`` (only ``@triton.jit``),
``launch.py`` (shape checks and the launch), ``check.py`` (the cases of the kernel check). What a
cached value looks like in memory, and its torch reference, lives in ``formats/`` and nowhere else.
"""
