#include "engine/layers/cache_scales.h"

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

absl::Status CheckScales(const std::string& name, absl::Span<const float> scales) {
  for (const float scale : scales) {
    if (scale > 0 && std::isfinite(scale)) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, " has a scale of ", scale,
                                                   ", want numbers above 0; serve with another "
                                                   "--kv-cache-dtype to do without"));
  }
  return absl::OkStatus();
}

// Scales of `heads`, stored as one number or one for each of `all` heads, with any dimensions of 1
// behind.
absl::StatusOr<std::vector<float>> ReadScales(const TensorInfo& info, Range heads, int64_t all,
                                              LoadContext& ctx) {
  const auto is_one = [](int64_t size) { return size == 1; };
  const absl::Span<const int64_t> shape = info.shape;
  const bool one = absl::c_all_of(shape, is_one);
  if (!one && (shape[0] != all || !absl::c_all_of(shape.subspan(1), is_one))) {
    return absl::InvalidArgumentError(
        absl::StrCat(info.name, " has shape [", absl::StrJoin(shape, ", "),
                     "], want one scale or one for each of ", all,
                     " kv heads; serve with another --kv-cache-dtype to do without"));
  }
  ctx.weights.Skip(info.name, info.shape);
  std::vector<float> scales(static_cast<size_t>(heads.size()), 1.0f);
  if (ctx.weights.recording()) return scales;
  std::vector<Range> ranges(shape.size(), Range{0, 1});
  if (!one) ranges[0] = heads;
  RETURN_IF_ERROR(ctx.weights.source().Read(info.name, ranges, DType::kF32, scales.data()));
  if (one) scales.assign(scales.size(), scales[0]);
  RETURN_IF_ERROR(CheckScales(info.name, scales));
  return scales;
}

// `which`: k or v.
absl::StatusOr<Weight> LoadScale(const std::string& prefix, std::string_view which, Range heads,
                                 int64_t all, LoadContext& ctx) {
  const std::string kind(which);
  for (const std::string& name : {absl::StrCat(prefix, ".", kind, "_proj.", kind, "_scale"),
                                  absl::StrCat(prefix, ".", kind, "_scale"),
                                  absl::StrCat(prefix, ".", kind, "_proj.output_scale")}) {
    const absl::StatusOr<TensorInfo> info = ctx.weights.source().Find(name);
    if (absl::IsNotFound(info.status())) continue;
    RETURN_IF_ERROR(info.status());
    ASSIGN_OR_RETURN(const std::vector<float> scales, ReadScales(*info, heads, all, ctx));
    return ctx.weights.Upload(scales);
  }
  return ctx.weights.Upload(std::vector<float>(static_cast<size_t>(heads.size()), 1.0f));
}

}  // namespace

absl::StatusOr<CacheScales> LoadCacheScales(const std::string& prefix, Range heads,
                                            int64_t num_kv_heads, LoadContext& ctx) {
  CacheScales scales;
  ASSIGN_OR_RETURN(scales.k, LoadScale(prefix, "k", heads, num_kv_heads, ctx));
  ASSIGN_OR_RETURN(scales.v, LoadScale(prefix, "v", heads, num_kv_heads, ctx));
  return scales;
}

bool IsCacheScale(const std::string& tensor) {
  const std::string_view name = tensor;
  return name.ends_with(".k_scale") || name.ends_with(".v_scale") ||
         name.ends_with(".k_proj.output_scale") || name.ends_with(".v_proj.output_scale");
}

}  // namespace millrace
