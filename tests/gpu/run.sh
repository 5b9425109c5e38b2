#!/bin/bash
# On a GPU machine, in a bundle made by bundle.sh: runs every test on its CUDA row, also under
# compute-sanitizer, and prints a table. Exit code 0 only when every cell passed.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
export LD_LIBRARY_PATH="$here/lib:${LD_LIBRARY_PATH:-}"

# cell NAME COMMAND...: one test program; a run without a test counts as failed.
cell() {
  local log
  log=$(mktemp)
  if "${@:2}" >"$log" 2>&1 && grep -qE '\[  PASSED  \] [1-9][0-9]* test' "$log" &&
    ! grep -q '\[  SKIPPED \]' "$log"; then
    printf '%-22s %-28s passed (%s)\n' "$1" "$(basename "$binary")" \
      "$(grep -oE '\[  PASSED  \] [0-9]+' "$log" | grep -oE '[0-9]+$')"
  else
    printf '%-22s %-28s FAILED\n' "$1" "$(basename "$binary")"
    tail -n 25 "$log"
    failed=1
  fi
  rm -f "$log"
}

failed=0
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
for binary in "$here"/bin/*_test; do
  # Tests without a device parameter run whole; the others on the GPU only.
  filter='--gtest_filter=*/cuda:CudaDevice*'
  cell "plain" "$binary" "$filter"
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
      cell "$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$binary" \
        "$filter:-*TooLargeAnAllocation*"
    done
  fi
done
exit "$failed"
