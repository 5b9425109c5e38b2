// What the codes of an FP8 cache stand for.
#ifndef ENGINE_LAYERS_CACHE_SCALES_H_
#define ENGINE_LAYERS_CACHE_SCALES_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/layers/weight_loader.h"
#include "engine/parallel/shard.h"

namespace millrace {

// Of one layer's keys and values, [kv heads of this rank] f32 each: a head's code c stands for
// c * scale. Empty views where the cache holds no codes.
struct CacheScales {
  Weight k, v;
};

// The checkpoint's, `prefix`.k_proj.k_scale and .v_proj.v_scale, `prefix`.k_scale and .v_scale, or
// as older compressed-tensors exports call them .k_proj.output_scale and .v_proj.output_scale: one
// for all heads or one each; 1 where it has none. `heads`: this rank's of `num_kv_heads`.
// InvalidArgument for another shape, or a scale that is not above 0 and finite.
absl::StatusOr<CacheScales> LoadCacheScales(const std::string& prefix, Range heads,
                                            int64_t num_kv_heads, LoadContext& ctx);

// Whether a tensor is such a scale, which a model with another cache leaves alone.
bool IsCacheScale(const std::string& tensor);

}  // namespace millrace

#endif  // ENGINE_LAYERS_CACHE_SCALES_H_
