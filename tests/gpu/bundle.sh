#!/bin/bash
# Makes bundle/gpu: the tests that have a CUDA row and the benchmarks that run on a GPU, with the
# shared libraries they need, for a GPU machine without Bazel. Copy the folder there and run run.sh
# in it.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
# shellcheck source=tools/bazel/env.sh
source tools/bazel/env.sh

# Add an op's test here together with its CUDA row.
targets=(
  //distributed/comm:nccl_test
  //distributed/comm:peer_memory_test
  //kernels/all_reduce:all_reduce_test
  //kernels/bench:bench_bed_test
  //kernels/cuda:cuda_device_test
  //kernels/embedding:embedding_test
  //kernels/gate_up:gate_up_test
  //kernels/kv_append:kv_append_test
  //kernels/linear:linear_test
  //kernels/merge_columns:merge_columns_test
  //kernels/paged_attention:paged_attention_test
  //kernels/rms_norm:rms_norm_test
  //kernels/rope:rope_test
  //kernels/rope_append:rope_append_test
  //kernels/sample:sample_draw_test
  //kernels/sample:sample_test
  //kernels/swiglu:swiglu_test
)
# A benchmark runs on a GPU when it is written for BenchMain().
for source in $(grep -l 'kernels/bench/bench_bed.h' kernels/*/*_bench.cc); do
  name=$(basename "$source" .cc)
  targets+=("//$(dirname "$source"):$name")
done

bazel build "${BAZEL_FLAGS[@]}" "${targets[@]}" </dev/null
bin=$(bazel info "${BAZEL_FLAGS[@]}" bazel-bin 2>/dev/null)
out=bundle/gpu
rm -rf "$out"
mkdir -p "$out/bin" "$out/lib"
for target in "${targets[@]}"; do
  path=${target#//}
  cp -L "$bin/${path/://}" "$out/bin/"
done
# The target's own libc, libstdc++, driver and CUDA toolkit (half a gigabyte of cuBLAS, NCCL) stay its own.
for binary in "$out"/bin/*; do ldd "$binary"; done | awk '$3 ~ /^\// {print $3}' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcuda|libcublas|libcublasLt|libnccl)\.so' |
  xargs -r cp -L -t "$out/lib"
chmod u+w "$out"/bin/* "$out"/lib/*
strip --strip-unneeded "$out"/bin/* "$out"/lib/*
cp tests/gpu/run.sh "$out/"
du -sh "$out"
