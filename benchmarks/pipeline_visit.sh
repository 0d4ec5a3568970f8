#!/usr/bin/env bash
# A short visit to a GPU host: the pipeline runs for a limited time, and what it finished is packed to be carried home.
#
#   OUT=out benchmarks/pipeline_visit.sh PLATFORM SECONDS TARGET...
#
# The project is installed here already (docs/offline.md). Snakemake is ended by SIGINT after SECONDS; what is unfinished
# then is measured in a later visit. OUT gets evidence.tar.xz (in pieces), snakemake.log, and logs.tgz: the logs of
# jobs and of servers. Environment:
#   MERGE    evidence of earlier visits, one or more archives (for pieces, the name without .000), merged first
#   DEVICES  devices to use at once (default: those that CUDA_VISIBLE_DEVICES or nvidia-smi names, else 1)
#   CORES    cores for Snakemake (default: all)
#   GRACE    seconds after SIGINT before Snakemake is killed (default 60)
#   PIECE    size of a piece of the archive (default 15MiB)
# Exit status: Snakemake's (0: all targets are there; 1: a job failed), 124 where the time ran out, 125: nothing was run.
set -u
cd "$(dirname "$0")/.." || exit 125
usage() { sed -n '2,5p' "$0" >&2; echo "pipeline_visit.sh: $1" >&2; exit 125; }
[ $# -ge 3 ] || usage "PLATFORM, SECONDS and at least one TARGET are needed, $# arguments were given"
platform=$1 seconds=$2
shift 2
[ -f "config/platforms/$platform.yaml" ] ||
  usage "PLATFORM is '$platform': config/platforms/$platform.yaml does not exist; there are $(cd config/platforms && echo *.yaml)"
case $seconds in '' | *[!0-9]* | 0) usage "SECONDS is '$seconds': a whole number of at least 1 is needed" ;; esac
: "${OUT:=out}" "${MERGE:=}" "${CORES:=$(nproc)}" "${GRACE:=60}" "${PIECE:=15MiB}"
python=${PYTHON:-.envs/analysis/bin/python}
[ -x "$python" ] || usage "$python does not exist: install the bundle first (docs/offline.md), or name PYTHON"
export PYTHONPATH="$PWD/pythonpath${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
mkdir -p "$OUT"

count_devices() {
  if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then tr ',' '\n' <<< "$CUDA_VISIBLE_DEVICES" | grep -c .; return; fi
  local found
  found=$(nvidia-smi --query-gpu=index --format=csv,noheader 2> /dev/null | grep -c '^[0-9]')
  echo $((found > 0 ? found : 1))
}
: "${DEVICES:=$(count_devices)}"

for archive in $MERGE; do
  "$python" -m adrbench.archive merge "$archive" || { echo "pipeline_visit.sh: $archive was not merged; nothing was run" >&2; exit 125; }
done

# The jobs of a Snakemake that had to be killed end by themselves, with their servers; nothing is packed before.
jobs_left() {
  local folder
  for folder in /proc/[0-9]*; do
    [ "$folder/cwd" -ef . ] || continue
    tr '\0' ' ' 2> /dev/null < "$folder/cmdline" | grep -qE -- '-m adrbench\.[a-z.]+ --spec' && echo "${folder#/proc/}"
  done
}

"$python" -m adrbench.locks || exit 125 # a run is going on here; the lock of one that was killed is freed
began=$SECONDS
echo "=== $platform: $* (at most $seconds s, $DEVICES device(s), $CORES cores)"
# SIGINT goes to Snakemake and, as Ctrl-C does, to the jobs of its process group.
timeout --signal=INT --kill-after="$GRACE" "$seconds" \
  "$python" -m snakemake --cores "$CORES" --resources "device=$DEVICES" --keep-going --config "platform=$platform" -- "$@" \
  > "$OUT/snakemake.log" 2>&1
status=$?
[ $status -eq 137 ] && status=124
for _ in $(seq "$GRACE"); do [ -z "$(jobs_left)" ] && break; sleep 1; done
[ -z "$(jobs_left)" ] || echo "=== still running: $(jobs_left | tr '\n' ' ')"
echo "=== snakemake: status $status after $((SECONDS - began)) s; $OUT/snakemake.log ends:"
tail -n 15 "$OUT/snakemake.log" | cut -c 1-300

# Failed jobs: Snakemake names the log of each below its "Error in rule".
awk '/^ *Error in rule/ { failed = 1 } failed && /^ *log: / { print $2; failed = 0 }' "$OUT/snakemake.log" | sort -u |
  while read -r log; do
    echo "=== failed: $log ends:"
    tail -n 15 "$log" 2> /dev/null | cut -c 1-400
  done

find "logs/$platform" "results/$platform" -type f \( -name '*.log' -o -path '*/rejected/*' \) 2> /dev/null |
  tar -czf "$OUT/logs.tgz" --files-from=- || echo "=== the logs were not packed"
"$python" -m adrbench.archive pack --without-models --incomplete --platform "$platform" --piece-size "$PIECE" --output "$OUT/evidence.tar.xz" ||
  echo "=== nothing was packed"
exit "$status"
