// Products of FP8 E4M3 matrices, many at a time: groups of rows, as of the tokens of an expert,
// each with a weight of its own.
#ifndef KERNELS_FP8_GROUPED_GEMM_FP8_GROUPED_GEMM_H_
#define KERNELS_FP8_GROUPED_GEMM_FP8_GROUPED_GEMM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

// Which rows are whose. The numbers lie on the device, so a CUDA graph can be replayed with others.
// Where they are out of range they are taken as the nearest that is not.
enum class Fp8GroupedRows : uint8_t {
  // Each group has T / G places, from row group * (T / G) on; rows[group] of them, the first,
  // count.
  // rows: [G], from 0 to T / G.
  kMasked,
  // Rows lie sorted by group, with any number in each and no alignment: those of a group are
  // [rows[group], rows[group + 1]). rows: [G + 1], not falling, from 0 to T; there may be rows
  // ahead
  // of the first group and after the last.
  kContiguous,
};

// T rows (of tokens, or places for them), G groups, K inputs, N outputs. Codes are E4M3
// (kernels/lowp), row-major; rows may be padded.
struct Fp8GroupedGemmArgs {
  TensorView x;             // [T, K] u8
  TensorView x_scale;       // [ceil(K / 128), T] f32, as Quantize writes it by groups for all rows
  TensorView weight;        // [G, N, K] u8
  TensorView weight_scale;  // [G, ceil(N / 128), ceil(K / 128)] f32
  TensorView rows;          // i32, see Fp8GroupedRows
  TensorView y;             // [T, N] f32 or bf16; overlaps no other operand
  Fp8GroupedRows form = Fp8GroupedRows::kContiguous;
  // How many rows a group that has any is expected to have, by what the host knows; 0: T / G.
  // Nothing but speed depends on it, and which kernel runs.
  int64_t expected_rows = 0;
};

// Of each group, y = (x x_scale) (weight weight_scale)', as Fp8Gemm computes it with scales of
// blocks. Rows of y that are no group's are not written, and what x and x_scale hold there does not
// matter.
// CPU: a row's outputs do not depend on the other rows, nor on the number of threads.
// CUDA: rows of x, of a weight and of x_scale lie on 16 bytes, and so do the weights of groups, a
// whole number of rows apart, or the products are slow. Of the two fast kernels one is chosen by
// shapes, alignment and expected_rows; with one kernel, a row's outputs depend on nothing but the
// row and its group's weight, bit for bit.
// InvalidArgument: shapes, dtypes, masked and T no multiple of G. ResourceExhausted: workspace
// below Fp8GroupedGemmWorkspaceBytes. Unimplemented: no kernel for the device.
absl::Status Fp8GroupedGemm(const OpContext& ctx, const Fp8GroupedGemmArgs& args);

// Workspace that calls with at most `max_inputs` inputs need on this device.
int64_t Fp8GroupedGemmWorkspaceBytes(Device& device, int64_t max_inputs);

}  // namespace millrace

#endif  // KERNELS_FP8_GROUPED_GEMM_FP8_GROUPED_GEMM_H_
