// What rope and rope_append have in common on every side.
#ifndef KERNELS_ROPE_ROTATION_H_
#define KERNELS_ROPE_ROTATION_H_

#include <cstdint>

namespace millrace {

// Largest head that is rotated.
inline constexpr int64_t kMaxRopeDim = 512;

}  // namespace millrace

#endif  // KERNELS_ROPE_ROTATION_H_
