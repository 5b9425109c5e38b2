// Product of FP8 E4M3 matrices with scales.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_H_
#define KERNELS_FP8_GEMM_FP8_GEMM_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

// Inputs, and of a weight outputs too, that share a scale where blocks do.
inline constexpr int64_t kFp8GemmBlock = 128;

enum class Fp8GemmScales : uint8_t {
  // x [ceil(K / 128), T], as Quantize writes it by groups: of a token and 128 inputs. On CUDA its
  // rows lie on 16 bytes, or the product is slow. weight [ceil(N / 128), ceil(K / 128)].
  kBlocks,
  // x [T], of a token, or [1], of all. weight [N], of an output, or [1], of all.
  kVectors,
};

// T tokens, K inputs, N outputs. Codes are E4M3 (kernels/lowp), row-major; rows may be padded.
struct Fp8GemmArgs {
  TensorView x;             // [T, K] u8
  TensorView x_scale;       // f32
  TensorView weight;        // [N, K] u8
  TensorView weight_scale;  // f32
  TensorView y;             // [T, N], f32 or bf16, overwritten; may be `residual`, overlaps
                            // nothing else
  // CUDA: Fp8GemmFlags() i32, zero before the first call, from then on the op's own; calls that
  // share it are ordered. CPU: not looked at.
  TensorView flags;
  Fp8GemmScales scales = Fp8GemmScales::kBlocks;
  std::optional<TensorView> bias;      // [N], f32 or bf16
  std::optional<TensorView> residual;  // [T, N], f32 or bf16; rows may be padded; may be y itself
};

// y = (x x_scale) (weight weight_scale)' + bias + residual, added to the scaled sum in f32 in this
// order and rounded once. Each 128 inputs are summed, scaled and added up in f32;
// sums of 128 on the GPU's tensor cores keep at least 13 bits of the largest product. NaN codes
// give NaN.
// CPU: a token's outputs do not depend on the other tokens of the call, nor on the number of
// threads. CUDA: which kernel runs depends on the operands' shapes and alignment, the number of
// tokens among them (README.md), and so do the bits; the same call gives the same bits.
// InvalidArgument: shapes, dtypes, flags too few. ResourceExhausted: workspace below
// Fp8GemmWorkspaceBytes. Unimplemented: no kernel for the device.
absl::Status Fp8Gemm(const OpContext& ctx, const Fp8GemmArgs& args);

// For ops that are made of a product: what Fp8Gemm() would say to the operands of `args`, in the
// name of `op`.
absl::Status CheckFp8Gemm(std::string_view op, DeviceType device, const Fp8GemmArgs& args);

// Workspace that calls with at most `max_inputs` inputs need on this device.
absl::StatusOr<int64_t> Fp8GemmWorkspaceBytes(Device& device, int64_t max_inputs);
// Elements of `flags` on this device; 0 on the CPU.
absl::StatusOr<int64_t> Fp8GemmFlags(Device& device);

}  // namespace millrace

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_H_
