#include "kernels/core/tensor_view.h"

#include "absl/strings/str_cat.h"
#include "kernels/core/check.h"

namespace millrace {

TensorView TensorView::Of(void* data, DType dtype, std::initializer_list<int64_t> shape,
                          DeviceType device) {
  MR_CHECK_LE(shape.size(), static_cast<size_t>(kMaxRank));
  TensorView v{.data = data, .dtype = dtype, .device = device};
  for (int64_t d : shape) {
    MR_CHECK_GE(d, 0);
    v.dims[static_cast<size_t>(v.rank++)] = d;
  }
  int64_t stride = 1;
  for (int i = v.rank - 1; i >= 0; --i) {
    v.strides[static_cast<size_t>(i)] = stride;
    stride *= v.dim(i);
  }
  return v;
}

int64_t TensorView::size() const {
  int64_t n = 1;
  for (int i = 0; i < rank; ++i) n *= dim(i);
  return n;
}

bool TensorView::contiguous() const {
  int64_t expected = 1;
  for (int i = rank - 1; i >= 0; --i) {
    if (dim(i) != 1 && stride(i) != expected) return false;
    expected *= dim(i);
  }
  return true;
}

TensorView TensorView::Rows(int64_t begin, int64_t end) const {
  MR_CHECK(rank >= 1 && 0 <= begin && begin <= end && end <= dim(0));
  TensorView v = *this;
  v.dims[0] = end - begin;
  v.data = static_cast<char*>(data) + begin * stride(0) * DTypeBytes(dtype);
  return v;
}

TensorView TensorView::Cols(int64_t begin, int64_t end) const {
  const int last = rank - 1;
  MR_CHECK(rank >= 1 && 0 <= begin && begin <= end && end <= dim(last));
  TensorView v = *this;
  v.dims[static_cast<size_t>(last)] = end - begin;
  v.data = static_cast<char*>(data) + begin * stride(last) * DTypeBytes(dtype);
  return v;
}

std::string TensorView::ToString() const {
  std::string out = absl::StrCat(std::string(DTypeName(dtype)), "[");
  for (int i = 0; i < rank; ++i) absl::StrAppend(&out, i == 0 ? "" : ", ", dim(i));
  return absl::StrCat(out, "] on ", device == DeviceType::kCpu ? "cpu" : "cuda");
}

}  // namespace millrace
