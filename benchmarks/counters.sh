#!/bin/sh
# Memory traffic of decode by Nsight Compute on an NVIDIA host, beside the bytes model; needs ncu and vLLM there.
#
#   sh benchmarks/counters.sh MODEL_FOLDER OUTPUT.json [PYTHON] [further arguments of vllm serve]
#
# A folder with config.json and a tokenizer is enough with `--load-format dummy`. Exit code 0 also where the counters
# cannot be had: OUTPUT then says why (`measured.absent`).
set -eu
model=$1 output=$2 python=${3:-python3}
shift 2
[ $# -gt 0 ] && shift
root=$(cd "$(dirname "$0")/.." && pwd)
args=$("$python" -c 'import json, sys; print(json.dumps(sys.argv[1:]))' "$@")
spec=$(cat <<JSON
{"platform": "h200", "vendor": "nvidia", "arm": {"name": "auto"}, "python": "$python", "model": "$model", "args": $args,
 "env": {}, "kv_dtype": "auto", "workload": {"requests": 8, "input_tokens": 4096, "output_tokens": 64, "concurrency": 8}}
JSON
)
# The job itself needs no vLLM: any Python 3.11 or later with numpy and pydantic.
PYTHONPATH="$root/pythonpath${PYTHONPATH:+:$PYTHONPATH}" "$python" -m adrbench.profile.counters --spec "$spec" --output "$output"
"$python" -c 'import json, sys; print(json.dumps(json.load(open(sys.argv[1]))["measured"], indent=1))' "$output"
