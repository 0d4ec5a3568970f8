"""One job of the test workflow: takes its device, works for some seconds, writes what it saw."""

import os
import sys
import time
from pathlib import Path

from adrbench.device.lease import lease
from adrbench.evidence import write_json

output, seconds, fail = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
with open("runs.log", "a") as stream:
    stream.write(f"{output.stem}\n")
if output.stem == fail:
    sys.exit("told to fail")
devices = lease("hygon", 1)
assert devices is not None
began = time.time()
time.sleep(seconds)
node = os.environ.get("SLURMD_NODENAME", "")
seen = {"node": node, "devices": devices.devices, "began": began, "ended": time.time()}
write_json(output, seen | {"job": os.environ.get("SLURM_JOB_ID")})
