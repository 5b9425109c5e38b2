// The reference: a product a group.
#include <algorithm>
#include <cstdint>

#include "kernels/core/status.h"
#include "kernels/fp8_gemm/fp8_gemm.h"
#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm_impl.h"

namespace millrace {
namespace {

struct RowRange {
  int64_t begin, end;
};

RowRange RowsOf(const Fp8GroupedGemmArgs& args, int64_t group) {
  const int32_t* const rows = args.rows.as<int32_t>();
  if (args.form == Fp8GroupedRows::kMasked) {
    const int64_t places = args.x.dim(0) / args.weight.dim(0);
    const int64_t begin = group * places;
    return {begin, begin + std::clamp<int64_t>(rows[group], 0, places)};
  }
  const int64_t begin = std::clamp<int64_t>(rows[group], 0, args.x.dim(0));
  return {begin, std::clamp<int64_t>(rows[group + 1], begin, args.x.dim(0))};
}

}  // namespace

absl::Status Fp8GroupedGemmCpu(const OpContext& ctx, const Fp8GroupedGemmArgs& args) {
  for (int64_t group = 0; group < args.weight.dim(0); ++group) {
    const auto [begin, end] = RowsOf(args, group);
    RETURN_IF_ERROR(Fp8Gemm(ctx, {.x = args.x.Rows(begin, end),
                                  .x_scale = args.x_scale.Cols(begin, end),
                                  .weight = GroupOf(args.weight, group),
                                  .weight_scale = GroupOf(args.weight_scale, group),
                                  .y = args.y.Rows(begin, end),
                                  .flags = {}}));
  }
  return absl::OkStatus();
}

}  // namespace millrace
