"""A worker whose third case aborts the process, as a compiler can, and whose fourth hangs."""

import os
import time

from adrbench.kernels import worker
from adrbench.kernels.case import Case

worker.all_cases = lambda: [
    Case("primitive", "int8", "load", lambda device: 0.0),
    Case("store", "int8", "good", lambda device: 0.0, needs=("int8:load",)),
    Case("store", "int8", "aborts", lambda device: os.abort()),
    Case("primitive", "bf16", "hangs", lambda device: time.sleep(600)),
    Case("store", "bf16", "rests on the hanging one", lambda device: 0.0, needs=("bf16:hangs",)),
    Case("store", "int8", "after", lambda device: 0.0),
]

if __name__ == "__main__":
    worker.main()
