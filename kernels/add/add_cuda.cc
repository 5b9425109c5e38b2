#include <cstdint>
#include <limits>

#include "kernels/add/add_impl.h"
#include "kernels/add/add_kernel.h"
#include "kernels/cuda/cuda_status.h"

namespace millrace {
namespace {

AddRows RowsOf(const TensorView& t) {
  return {.data = t.data, .stride = t.stride(0), .bf16 = t.dtype == DType::kBF16};
}

bool OnWords(const TensorView& t) {
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 &&
         (t.dim(0) <= 1 || t.stride(0) * DTypeBytes(t.dtype) % 16 == 0);
}

}  // namespace

absl::Status AddCuda(const OpContext& ctx, const AddArgs& args) {
  const int64_t tokens = args.y.dim(0), width = args.y.dim(1);
  if (tokens > std::numeric_limits<int32_t>::max() || width > kAddMaxWidth) {
    return absl::UnimplementedError(
        "Add: more than 2^31 - 1 tokens or 16776960 elements a token on cuda");
  }
  const bool vectors =
      width % kAddVector == 0 && OnWords(args.a) && OnWords(args.b) && OnWords(args.y);
  return CudaStatus(LaunchAdd({.a = RowsOf(args.a),
                               .b = RowsOf(args.b),
                               .y = RowsOf(args.y),
                               .tokens = static_cast<int32_t>(tokens),
                               .width = static_cast<int32_t>(width)},
                              vectors, ToCuda(ctx.stream)),
                    "Add");
}

}  // namespace millrace
