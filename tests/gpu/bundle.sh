#!/bin/bash
# Makes bundle/gpu/millrace_gpu_checks.tar.gz: every GPU test and benchmark, golden and step_bench,
# with the shared libraries they need, for a GPU machine without Bazel. Unpack it there and run
# millrace/run.sh.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
# shellcheck source=tools/bazel/env.sh
source tools/bazel/env.sh

bazel build "${BAZEL_FLAGS[@]}" //tests/gpu:gpu_checks </dev/null
bin=$(bazel info "${BAZEL_FLAGS[@]}" bazel-bin 2>/dev/null)
mkdir -p bundle/gpu
cp -f "$bin/tests/gpu/millrace_gpu_checks.tar.gz" bundle/gpu/
ls -l bundle/gpu
