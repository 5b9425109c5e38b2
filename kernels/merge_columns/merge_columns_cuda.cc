#include <cstddef>
#include <cstdint>

#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/merge_columns/merge_columns_impl.h"
#include "kernels/merge_columns/merge_columns_kernel.h"

namespace millrace {
namespace {

static_assert(kMergeColumnsMaxParts == MergeColumnsKernelArgs::kMaxParts);

bool IsAligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

absl::Status MergeColumnsCuda(const OpContext& ctx, const MergeColumnsArgs& args) {
  constexpr int64_t kMaxColumns = int64_t{1} << 30;
  if (args.y.dim(0) > kMergeColumnsMaxRows || args.y.dim(1) > kMaxColumns) {
    return absl::UnimplementedError("MergeColumns: more than 65535 rows or 2^30 columns on cuda");
  }
  MergeColumnsKernelArgs kernel_args = {.parts = args.parts.as<const float>(),
                                        .y = args.y.as<float>(),
                                        .y_stride = args.y.stride(0),
                                        .rows = static_cast<int32_t>(args.y.dim(0)),
                                        .num_parts = static_cast<int32_t>(args.columns.size())};
  bool vector = IsAligned(args.parts.data) && IsAligned(args.y.data) && args.y.stride(0) % 4 == 0;
  int32_t first = 0;
  for (size_t p = 0; p < args.columns.size(); ++p) {
    vector = vector && args.columns[p] % 4 == 0;
    first += static_cast<int32_t>(args.columns[p]);
    kernel_args.first[p + 1] = first;
  }
  const auto variant = vector ? MergeColumnsVariant::kVector : MergeColumnsVariant::kScalar;
  return CudaStatus(LaunchMergeColumns(variant, kernel_args, ToCuda(ctx.stream)), "MergeColumns");
}

}  // namespace millrace
