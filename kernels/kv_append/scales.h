// Scales of a cache of E4M3 codes, for the ops that write and read one: a head's code c stands for
// c * scale.
#ifndef KERNELS_KV_APPEND_SCALES_H_
#define KERNELS_KV_APPEND_SCALES_H_

#include <cstdint>

#include "kernels/core/shape_checker.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

struct CacheScales {
  const TensorView& cache;
  const TensorView& k_scale;
  const TensorView& v_scale;
};

// Checks that a cache of codes (u8) has its scales, [heads] f32, and another none.
inline ShapeChecker& BindCacheScales(const CacheScales& scales, int64_t heads,
                                     ShapeChecker& checker) {
  if (scales.cache.dtype == DType::kU8) {
    return checker.Bind("k_scale", scales.k_scale, {&heads}, {DType::kF32})
        .Bind("v_scale", scales.v_scale, {&heads}, {DType::kF32});
  }
  return checker.Require(scales.k_scale.data == nullptr && scales.v_scale.data == nullptr,
                         "k_scale and v_scale belong to a cache of uint8");
}

}  // namespace millrace

#endif  // KERNELS_KV_APPEND_SCALES_H_
