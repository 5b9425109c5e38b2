#!/bin/bash
# On a GPU machine, in a bundle made by bundle.sh: runs every test on its CUDA row, then every
# benchmark, and prints one table of each. Exit code 0 only when every test passed.
#
#   run.sh [--sanitize] [--no-bench] [NAME...]
#
# --sanitize runs the tests under compute-sanitizer's memcheck and racecheck too. With names, only
# programs whose name begins with one of them.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
export LD_LIBRARY_PATH="$here/lib:${CUDA_HOME:-/usr/local/cuda}/lib64:${LD_LIBRARY_PATH:-}"
at_once=$(($(nproc) * 3 / 4 + 1)) # cells; tests are not timed
readonly CELL_SECONDS=300
readonly NEED_TWO_GPUS=' all_reduce_test nccl_test peer_memory_test '

columns=(plain)
bench=1
names=()
for arg in "$@"; do
  case $arg in
    --sanitize) columns+=(memcheck racecheck) ;;
    --no-bench) bench=0 ;;
    -*) sed -n '5,8s/^# \?//p' "$0" && exit 2 ;;
    *) names+=("$arg") ;;
  esac
done
if [[ ${#columns[@]} -gt 1 ]] && ! command -v compute-sanitizer >/dev/null; then
  echo "--sanitize: there is no compute-sanitizer on the PATH" && exit 2
fi

# programs SUFFIX: those of the bundle that were asked for.
programs() {
  local path name
  for path in "$here"/bin/*"$1"; do
    for name in "${names[@]-}"; do
      [[ $(basename "$path") == "$name"* ]] && echo "$path" && break
    done
  done
}

# cell PROGRAM COLUMN: runs a test on the GPU. Leaves its log, and "N passed" or "FAILED" beside it;
# a run without a test counts as failed, unless it is one that needs more GPUs than there are.
cell() {
  local out passed='' run=("$1") begin=$SECONDS
  out=$logs/$(basename "$1").$2
  # Tests without a device parameter that need a GPU say so in their name.
  local filter='--gtest_filter=*/cuda:CudaDevice*:*OnAGpu*'
  if [[ $2 != plain ]]; then
    run=(compute-sanitizer --tool "$2" --error-exitcode 9 "$1")
    filter+=':-*TooLargeAnAllocation*'
  fi
  if timeout "$CELL_SECONDS" "${run[@]}" "$filter" >"$out.log" 2>&1 &&
    ! grep -q '\[  SKIPPED \]' "$out.log"; then
    passed=$(grep -oE '\[  PASSED  \] [1-9][0-9]*' "$out.log" | grep -oE '[0-9]+$')
  fi
  if [[ -n $passed ]]; then
    echo "$passed passed"
  elif [[ $gpus -lt 2 && $NEED_TWO_GPUS == *" $(basename "$1") "* ]] &&
    ! grep -q '\[  FAILED  \]' "$out.log" && grep -q '\[  SKIPPED \]' "$out.log"; then
    echo 'two GPUs'
  else
    echo FAILED
  fi >"$out"
  echo "$((SECONDS - begin)) s $(basename "$out"): $(cat "$out")" >&2
}

logs=$(mktemp -d)
kill_tree() {
  local child
  for child in $(pgrep -P "$1"); do kill_tree "$child"; done
  kill "$1" 2>/dev/null
}

# Also when it is stopped: a test left behind would spoil whatever is timed next.
stop() {
  local job
  trap - EXIT
  for job in $(jobs -rp); do kill_tree "$job"; done
  rm -rf "$logs"
}
trap stop EXIT
trap 'exit 130' INT TERM
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
gpus=$(nvidia-smi --list-gpus | wc -l)
for program in $(programs _test); do
  for column in "${columns[@]}"; do
    while [[ $(jobs -rp | wc -l) -ge $at_once ]]; do wait -n; done
    cell "$program" "$column" &
  done
done
wait

printf '%-28s' test
printf ' %-12s' "${columns[@]}"
echo
for program in $(programs _test); do
  name=$(basename "$program")
  printf '%-28s' "$name"
  for column in "${columns[@]}"; do printf ' %-12s' "$(cat "$logs/$name.$column")"; done
  echo
done
failed=0
for program in $(programs _test); do
  for column in "${columns[@]}"; do
    cell=$logs/$(basename "$program").$column
    [[ $(cat "$cell") == FAILED ]] || continue
    failed=1
    echo "--- $(basename "$cell")"
    grep -n -m 30 -E '^=========|: Failure|\[  (FAILED|SKIPPED) ' "$cell.log"
    tail -n 25 "$cell.log"
  done
done

if [[ $bench == 1 ]]; then
  for program in $(programs _bench); do
    echo "--- $(basename "$program")"
    "$program" --device=cuda || failed=1
  done
fi

# Whole steps of Llama-3.1-8B's shapes with made-up weights: by graphs, then eagerly.
if [[ $bench == 1 && ${#names[@]} -eq 0 ]]; then
  mkdir "$logs/model" && cp "$here/llama_8b_shapes.json" "$logs/model/config.json"
  echo "--- step_bench, Llama-3.1-8B"
  "$here/bin/step_bench" --device cuda --model "$logs/model" --batch 1,8,64 --context 2048 || failed=1
  echo "--- the same, --enforce-eager"
  "$here/bin/step_bench" --device cuda --model "$logs/model" --batch 1,64 --context 2048 \
    --enforce-eager || failed=1
fi
exit "$failed"
