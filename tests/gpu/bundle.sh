#!/bin/bash
# Makes bundle/gpu: every GPU test and benchmark golden and step_bench, with the shared libraries
# they need, for a GPU machine without Bazel. Copy the folder there and run run.sh in it.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
# shellcheck source=tools/bazel/env.sh
source tools/bazel/env.sh

bazel build "${BAZEL_FLAGS[@]}" //tests/gpu:gpu_checks </dev/null
bin=$(bazel info "${BAZEL_FLAGS[@]}" bazel-bin 2>/dev/null)
rm -rf bundle/gpu
mkdir -p bundle/gpu
tar -C bundle/gpu --strip-components=1 -xzf "$bin/tests/gpu/millrace_gpu_checks.tar.gz"
du -sh bundle/gpu
