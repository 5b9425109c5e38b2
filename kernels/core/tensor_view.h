// A borrowed, strided view of a tensor. Never owns memory; trivially copyable.
#ifndef KERNELS_CORE_TENSOR_VIEW_H_
#define KERNELS_CORE_TENSOR_VIEW_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/core/dtype.h"

namespace millrace {

enum class DeviceType : uint8_t { kCpu, kCuda };

inline constexpr int kMaxRank = 4;

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  DeviceType device = DeviceType::kCpu;
  int32_t rank = 0;
  std::array<int64_t, kMaxRank> dims = {};
  std::array<int64_t, kMaxRank> strides = {};  // in elements; the last is 1 unless a doc says so

  // Contiguous, row-major view. REQUIRES: shape.size() <= kMaxRank, no negative dim.
  static TensorView Of(void* data, DType dtype, std::initializer_list<int64_t> shape,
                       DeviceType device = DeviceType::kCpu);

  int64_t dim(int i) const { return dims[static_cast<size_t>(i)]; }
  int64_t stride(int i) const { return strides[static_cast<size_t>(i)]; }
  int64_t size() const;     // number of elements; 1 for rank 0
  bool contiguous() const;  // row-major without gaps
  bool empty() const { return size() == 0; }

  // Rows [begin, end) of the first dimension. REQUIRES: rank >= 1, 0 <= begin <= end <= dim(0).
  TensorView Rows(int64_t begin, int64_t end) const;
  // Elements [begin, end) of the last dimension, keeping strides.
  TensorView Cols(int64_t begin, int64_t end) const;

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }

  std::string ToString() const;  // "bfloat16[7, 4096] on cpu"
};

}  // namespace millrace

#endif  // KERNELS_CORE_TENSOR_VIEW_H_
