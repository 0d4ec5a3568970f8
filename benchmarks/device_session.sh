#!/usr/bin/env bash
# What a short visit to a GPU host measures, part by part; a part that fails or runs out of time does not stop the next.
#
#   PYTHON=python3 RESULTS=results/h200 MODEL=models/embedded benchmarks/device_session.sh checks store bench served
#
# PYTHON has torch and Triton (with vLLM importable for `baselines`, `agreement`, `served`,
# `simulation`, `simulation_cost`); PYTHONPATH may hold more.
# Where OUT names a folder, what each part found lies there as JSON after it, and everything so far in OUT/session.tgz.
#
# What the kernels need of their next visit, in at most 550 s of one GPU: `variants variants_store splits grid`.
set -u
cd "$(dirname "$0")/.."
: "${PYTHON:=python3}" "${RESULTS:=results/session}" "${MODEL:=models/embedded}" "${WORKERS:=14}"
export PYTHON RESULTS MODEL WORKERS
export PYTHONPATH="$PWD/pythonpath${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 TRITON_DEFAULT_FP_FUSION=1
mkdir -p "$RESULTS"

part() { # part NAME SECONDS COMMAND...: run it with a limit, keep its log
  local name=$1 limit=$2 began=$SECONDS
  shift 2
  echo "=== $name (limit $limit s)"
  timeout -k 15 "$limit" "$@" > "$RESULTS/$name.log" 2>&1
  echo "=== $name: exit $? after $((SECONDS - began)) s"
  tail -n "${LINES_OF_LOG:-40}" "$RESULTS/$name.log" | cut -c 1-400
  if [ -n "${OUT:-}" ]; then # complete or not there: two parts may end together
    tar -czf "$OUT/.$name.tgz" --exclude='*.safetensors' --exclude=tokenizer.json -C "$RESULTS" . 2> /dev/null
    mv -f "$OUT/.$name.tgz" "$OUT/session.tgz"
    find "$RESULTS" -maxdepth 1 -name '*.json' -exec cp -f {} "$OUT/" ';'
  fi
}

device_tests() { # device_tests NAME SECONDS PYTEST-ARGUMENTS...: the kernels' tests, their outcomes as JSON
  local name=$1 limit=$2
  shift 2
  part "$name" "$limit" bash -c '
    "$PYTHON" -m pytest -q -p no:cacheprovider -n "$WORKERS" --junitxml="$0.xml" "$@" tests/kernels/test_kernels_device.py \
      tests/kernels/test_kernels_warmup_device.py
    code=$?
    "$PYTHON" benchmarks/outcomes.py "$0.xml" "$0.json"
    exit $code' "$RESULTS/kernels_$name" "$@"
}

BENCH="$PYTHON benchmarks/decode_attention.py"
for name in "$@"; do
  case $name in
    grid) # every kernel against fp32, one set on the current sources
      device_tests grid 150 ;;
    agreement) # real weights, teacher-forced; five servers at once, not timed
      part agreement 280 "$PYTHON" benchmarks/served_agreement.py --model "$MODEL" --work "$RESULTS/agreement" --output "$RESULTS/agreement.json" ${AGREEMENT_ARGS:-} ;;
    agreement_kivi) # KIVI-4 served: chunks, decodes, graphs, its window in pages
      part agreement_kivi 240 "$PYTHON" benchmarks/served_agreement.py --model "$MODEL" --work "$RESULTS/agreement_kivi" --output "$RESULTS/agreement_kivi.json" --arms FLASH_ATTN:auto CUSTOM:kivi4 ;;
    checks) # both of the above: neither is timed, so they run side by side
      "$PWD/benchmarks/device_session.sh" agreement &
      WORKERS=9 "$PWD/benchmarks/device_session.sh" grid
      wait ;;
    bench) # our rows: all schemes, page sizes
      part bench 150 $BENCH --batch 32 --length 16384 --baselines --output "$RESULTS/decode_ours.json"
      part pages 120 $BENCH --batch 32 --length 16384 --baselines --pages 16 128 784 --schemes int8_per_token_head int4_per_token_head --output "$RESULTS/decode_pages.json" ;;
    baselines) # what the ratios are against, in one run with ours
      part baselines 200 $BENCH --batch 32 --length 16384 --output "$RESULTS/decode_main.json" ;;
    sweep) # launch configurations of INT4: long pages, and groups
      part sweep_int4 120 $BENCH --sweep --workers "$WORKERS" --heads d128 --schemes int4_per_token_head --pages 64 128 --cuts 128x4 128x8 256x4 256x8 --stages 3 4 6 --output "$RESULTS/sweep_int4.json"
      part sweep_groups 150 $BENCH --sweep --workers "$WORKERS" --schemes int4_g32 --pages 64 --cuts 64x4 128x4 128x8 256x8 --stages 2 3 4 --output "$RESULTS/sweep_groups.json" ;;
    grouped) # INT4 in groups
      WORKERS=9 device_tests grouped 100 -k int4_g32
      part bench_grouped 60 $BENCH --batch 32 --length 16384 --baselines --schemes int4_g32 int4_per_token_head --output "$RESULTS/decode_grouped.json" ;;
    store_registers) # more programs a unit against spills
      part store_registers 100 "$PYTHON" benchmarks/store_kv.py --schemes int8_per_token_head fp8_per_token_head int4_per_token_head --registers 0 96 64 --warps 2 4 --output "$RESULTS/store_registers.json" ;;
    variants) # 4-bit decode kernels side by side, right before fast
      part variants 170 "$PYTHON" benchmarks/decode_variants.py --workers "$WORKERS" --check-seconds 85 --output "$RESULTS/decode_variants.json" ${VARIANT_ARGS:-} ;;
    splits) # split counts that are no powers of two, padded graphs: today's rule against the candidates
      LINES_OF_LOG=110 part splits 120 "$PYTHON" benchmarks/decode_splits.py --workers "$WORKERS" --seconds 95 --output "$RESULTS/decode_splits.json" ${SPLITS_ARGS:-} ;;
    variants_store) # the block kernel's cuts: byte for byte the launcher's own, and their times
      part variants_store 110 "$PYTHON" benchmarks/store_kv.py --workers "$WORKERS" --schemes int8_per_token_head fp8_per_token_head fp8_per_head int4_per_token_head int4_g32 kivi4 --cuts 2x0x0x0 4x0x0x0 4x0x1x0 2x0x0x1 2x128x0x1 4x0x0x1 4x96x0x1 4x0x0x2 4x96x0x2 4x128x0x2 4x128x0x4 --budget 0.02 --output "$RESULTS/store_variants.json" ;;
    windowed) # KIVI-4 and what else was written after the last visit, alone: kernels, newest tokens in pages, 1024 + u
      device_tests windowed 120 -k "kivi or unpacked or nan_scale or forms or two_heads" ;;
    variants_counters) # why a variant is as slow as it is
      part variants_counters "${COUNTER_SECONDS:-55}" ncu --clock-control none --csv --kernel-name "regex:decode_(unpacked|grouped|partial)_kernel" --section SpeedOfLight --section SchedulerStats --section WarpStateStats --section InstructionStats --section Occupancy --section MemoryWorkloadAnalysis --log-file "$RESULTS/variants_counters.csv" "$PYTHON" benchmarks/decode_variants.py --once --heads "${COUNTER_HEADS:-d128}" --variants ${COUNTER_VARIANTS:-int4_g32/64/unpacked/32x1x4x8 kivi4/64/unpacked/32x1x4x8} ;;
    store)
      part store 120 "$PYTHON" benchmarks/store_kv.py --warps 2 4 8 --output "$RESULTS/store.json" ;;
    served) # Qwen3-8B shape, 32 requests of 16k
      part served "${SERVED_SECONDS:-560}" "$PYTHON" benchmarks/served_decode.py --budget "${SERVED_SECONDS:-560}" --work "$RESULTS/served" --output "$RESULTS/served_decode.json" ${SERVED_ARGS:-} ;;
    simulation) # every simulated KV scheme against its definition, in FLASH_ATTN and TRITON_ATTN; decided in eight minutes
      LINES_OF_LOG=110 part simulation "${SIMULATION_SECONDS:-480}" "$PYTHON" benchmarks/simulation_proof.py --model "$MODEL" --seconds "$((${SIMULATION_SECONDS:-480} - 25))" --output "$RESULTS/simulation_proof.json" ${SIMULATION_ARGS:-} ;;
    simulation_cost) # what simulating costs a decode step: two thirds of an 8B shape, five engines at once, and the embedded model
      part simulation_cost "${COST_SECONDS:-240}" "$PYTHON" benchmarks/kv_simulation.py --device cuda --model "$MODEL" --shape qwen3-8b --layers 24 --batch 32 --prompt 2048 --schemes ${COST_SCHEMES:-int8_per_token_head kivi4 int4_hadamard fp8_per_head} --repeats 12 --ready-seconds "$((${COST_SECONDS:-240} - 60))" --repeat-seconds 20 --seconds "$((${COST_SECONDS:-240} - 40))" --output "$RESULTS/simulation_cost.json" ;;
    hybrid) # Qwen3.5-27B shape, 10 requests of 32k
      part hybrid "${HYBRID_SECONDS:-560}" "$PYTHON" benchmarks/served_decode.py --shape qwen3.5-27b --requests 10 --input 32768 --arms FLASH_ATTN:auto CUSTOM:int8_per_token_head TRITON_ATTN:auto --ready 420 --arm-seconds 320 --budget "${HYBRID_SECONDS:-560}" --work "$RESULTS/hybrid" --output "$RESULTS/served_hybrid.json" --extra --language-model-only --gdn-prefill-backend triton ;;
    *) echo "unknown part $name" ; exit 2 ;;
  esac
done
