#include <algorithm>
#include <cstdint>

#include "kernels/core/status.h"
#include "kernels/cuda/cuda_device_impl.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/moe_experts/moe_experts_impl.h"
#include "kernels/moe_experts/moe_experts_kernel.h"

namespace millrace {
namespace {

// Tokens that pass through at once. Bounds the workspace.
constexpr int64_t kMaxTokens = 1024;
constexpr int64_t kWorkspaceUnit = 256;

// REQUIRES: chosen > 0.
int64_t ChunkTokens(int64_t chosen) { return std::min(kMaxTokens, kMoeMostChoices / chosen); }

// Where things of a chunk lie in the workspace; null: how much there is.
class Memory {
 public:
  explicit Memory(uint8_t* base) : base_(base) {}
  template <typename T>
  void Take(int64_t count, T*& out) {
    if (base_) out = reinterpret_cast<T*>(base_ + bytes_);
    const int64_t bytes = count * int64_t{sizeof(T)};
    bytes_ += (bytes + kWorkspaceUnit - 1) / kWorkspaceUnit * kWorkspaceUnit;
  }
  int64_t bytes() const { return bytes_; }

 private:
  uint8_t* base_;
  int64_t bytes_ = 0;
};

int64_t Divide(uint8_t* base, const MoeExpertsShape& s, int64_t tokens, MoeKernelArgs& args) {
  Memory memory(base);
  const int64_t choices = tokens * s.chosen;
  memory.Take(2, args.plan.sizes);
  memory.Take(choices, args.plan.items);
  memory.Take(choices, args.plan.order);
  memory.Take(choices, args.plan.place);
  memory.Take(tokens * s.hidden, args.prepared);
  memory.Take(choices * s.width, args.hidden);
  memory.Take(choices * s.hidden, args.sums);
  return memory.bytes();
}

MoeKernelArgs KernelArgs(const MoeExpertsArgs& args) {
  return {.x = args.x.data,
          .x_stride = args.x.stride(0),
          .experts = args.experts.as<int32_t>(),
          .experts_stride = args.experts.stride(0),
          .weights = args.weights.as<float>(),
          .weights_stride = args.weights.stride(0),
          .tokens = static_cast<int32_t>(args.x.dim(0)),
          .chosen = static_cast<int32_t>(args.experts.dim(1)),
          .first_expert = args.first_expert,
          .x_bf16 = args.x.dtype == DType::kBF16,
          .rounds = args.rounding == ActivationRounding::kFp8Per128,
          .limit = args.limit,
          .gate = StoredMatrixArgsOf(args.gate),
          .up = StoredMatrixArgsOf(args.up),
          .down = StoredMatrixArgsOf(args.down),
          .y = args.y.as<float>(),
          .y_stride = args.y.stride(0)};
}

// Rows that lanes load 16 bytes at a time.
bool RowsOnWords(const TensorView& x) {
  const int64_t bytes = DTypeBytes(x.dtype);
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride(0) * bytes % 16 == 0;
}

absl::Status RunChunk(const MoeKernelArgs& args, bool fp4, int multiprocessors,
                      cudaStream_t stream) {
  cudaError_t error = LaunchMoePlan(args, stream);
  if (error == cudaSuccess) {
    error = fp4 ? LaunchMoeFp4GateUp(args, multiprocessors, stream)
                : LaunchMoePlainGateUp(args, stream);
  }
  if (error == cudaSuccess) {
    error =
        fp4 ? LaunchMoeFp4Down(args, multiprocessors, stream) : LaunchMoePlainDown(args, stream);
  }
  if (error == cudaSuccess) error = LaunchMoeCombine(args, stream);
  return CudaStatus(error, "MoeExperts");
}

}  // namespace

int64_t MoeExpertsCudaWorkspaceBytes(const MoeExpertsShape& shape) {
  MoeKernelArgs args;
  return shape.chosen == 0 ? 0 : Divide(nullptr, shape, ChunkTokens(shape.chosen), args);
}

absl::Status MoeExpertsCuda(const OpContext& ctx, const MoeExpertsArgs& args) {
  const int64_t chosen = args.experts.dim(1);
  if (chosen > kMoeMostChoices || args.gate.count > kMoeMostExperts) {
    return absl::UnimplementedError(
        "MoeExperts: more than 1024 experts of a rank, or 16384 choices of a token, on cuda");
  }
  if (chosen == 0 || args.gate.count == 0 || args.gate.rows == 0) {
    const size_t row = sizeof(float);
    return CudaStatus(cudaMemset2DAsync(args.y.data, static_cast<size_t>(args.y.stride(0)) * row, 0,
                                        static_cast<size_t>(args.y.dim(1)) * row,
                                        static_cast<size_t>(args.y.dim(0)), ToCuda(ctx.stream)),
                      "MoeExperts: zeros");
  }
  const CudaDevice& device = CudaDevice::Of(ctx.device);
  MoeKernelArgs chunk = KernelArgs(args);
  const bool fp4 = device.compute_capability() == 90 && chunk.rounds && CoversMoeFp4(chunk.gate) &&
                   CoversMoeFp4(chunk.up) && CoversMoeFp4(chunk.down) && RowsOnWords(args.x);
  const int64_t most = std::min(args.x.dim(0), ChunkTokens(chosen));
  const MoeExpertsShape shape = {.hidden = args.gate.cols,
                                 .width = args.gate.rows,
                                 .experts = args.gate.count,
                                 .chosen = chosen};
  WorkspaceScope scope(ctx.workspace);
  MoeKernelArgs unused;
  ASSIGN_OR_RETURN(void* const memory, scope.Take(Divide(nullptr, shape, most, unused)));
  Divide(static_cast<uint8_t*>(memory), shape, most, chunk);
  for (int64_t first = 0; first < args.x.dim(0); first += most) {
    const int64_t end = std::min(first + most, args.x.dim(0));
    chunk.tokens = static_cast<int32_t>(end - first);
    chunk.x = args.x.Rows(first, end).data;
    chunk.experts = args.experts.Rows(first, end).as<int32_t>();
    chunk.weights = args.weights.Rows(first, end).as<float>();
    chunk.y = args.y.Rows(first, end).as<float>();
    RETURN_IF_ERROR(RunChunk(chunk, fp4, device.multiprocessors(), ToCuda(ctx.stream)));
  }
  return absl::OkStatus();
}

}  // namespace millrace
