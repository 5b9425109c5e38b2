#include "kernels/testing/guarded_tensor.h"

#include <cmath>
#include <cstring>

#include "kernels/core/check.h"
#include "kernels/core/dtype.h"

namespace millrace {
namespace {

constexpr int64_t kGuardBytes = 256;  // keeps the first element at the device's alignment

bool IsFloat(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

template <typename T>
void Put(uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

template <typename T>
T Take(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

void Store(DType dtype, double value, uint8_t* to) {
  switch (dtype) {
    case DType::kF32:
      return Put(to, static_cast<float>(value));
    case DType::kBF16:
      return Put(to, ToBFloat16(static_cast<float>(value)).bits);
    case DType::kI32:
      return Put(to, static_cast<int32_t>(value));
    case DType::kI64:
      return Put(to, static_cast<int64_t>(value));
    case DType::kU8:
      return Put(to, static_cast<uint8_t>(value));
    case DType::kF16:
      break;
  }
  MR_CHECK(false);
}

double Load(DType dtype, const uint8_t* from) {
  switch (dtype) {
    case DType::kF32:
      return Take<float>(from);
    case DType::kBF16:
      return ToFloat(BFloat16{Take<uint16_t>(from)});
    case DType::kI32:
      return Take<int32_t>(from);
    case DType::kI64:
      return static_cast<double>(Take<int64_t>(from));
    case DType::kU8:
      return Take<uint8_t>(from);
    case DType::kF16:
      break;
  }
  MR_CHECK(false);
  return 0;
}

}  // namespace

GuardedTensor::GuardedTensor(Device& device, DType dtype, std::vector<int64_t> shape,
                             int64_t row_padding)
    : device_(device), guard_(IsFloat(dtype) ? 0xff : 0xa5) {
  MR_CHECK(shape.size() <= static_cast<size_t>(kMaxRank) && row_padding >= 0);
  view_.dtype = dtype;
  view_.device = device.type();
  view_.rank = static_cast<int32_t>(shape.size());
  int64_t elements = 1;
  for (int i = view_.rank - 1; i >= 0; --i) {
    const size_t at = static_cast<size_t>(i);
    view_.dims[at] = shape[at];
    view_.strides[at] = elements;
    elements *= shape[at];
    if (i == view_.rank - 1) elements += row_padding;
  }
  const int64_t bytes = 2 * kGuardBytes + elements * DTypeBytes(dtype);
  auto buffer = device.Allocate(bytes);
  MR_CHECK(buffer.ok());
  buffer_ = std::move(buffer).value();
  view_.data = static_cast<uint8_t*>(buffer_.data()) + kGuardBytes;
  Upload(std::vector<uint8_t>(static_cast<size_t>(bytes), guard_));
}

std::vector<int64_t> GuardedTensor::Offsets() const {
  std::vector<int64_t> offsets;
  offsets.reserve(static_cast<size_t>(view_.size()));
  std::array<int64_t, kMaxRank> index = {};
  for (int64_t n = view_.size(); n > 0; --n) {
    int64_t at = 0;
    for (int i = 0; i < view_.rank; ++i) at += index[static_cast<size_t>(i)] * view_.stride(i);
    offsets.push_back(kGuardBytes + at * DTypeBytes(view_.dtype));
    for (int i = view_.rank - 1; i >= 0; --i) {
      if (++index[static_cast<size_t>(i)] < view_.dim(i)) break;
      index[static_cast<size_t>(i)] = 0;
    }
  }
  return offsets;
}

std::vector<uint8_t> GuardedTensor::Download() const {
  std::vector<uint8_t> bytes(static_cast<size_t>(buffer_.bytes()));
  MR_CHECK(
      device_.Copy(bytes.data(), buffer_.data(), buffer_.bytes(), CopyKind::kDeviceToHost, Stream{})
          .ok());
  MR_CHECK(device_.Synchronize(Stream{}).ok());
  return bytes;
}

void GuardedTensor::Upload(const std::vector<uint8_t>& bytes) {
  MR_CHECK(
      device_.Copy(buffer_.data(), bytes.data(), buffer_.bytes(), CopyKind::kHostToDevice, Stream{})
          .ok());
  MR_CHECK(device_.Synchronize(Stream{}).ok());
}

GuardedTensor& GuardedTensor::Set(const std::vector<double>& values) {
  MR_CHECK_EQ(static_cast<int64_t>(values.size()), size());
  std::vector<uint8_t> bytes = Download();
  size_t i = 0;
  for (int64_t offset : Offsets()) Store(view_.dtype, values[i++], bytes.data() + offset);
  Upload(bytes);
  return *this;
}

GuardedTensor& GuardedTensor::SetAll(double value) {
  return Set(std::vector<double>(static_cast<size_t>(size()), value));
}

GuardedTensor& GuardedTensor::SetUniform(TestRng& rng, double low, double high) {
  std::vector<double> values(static_cast<size_t>(size()));
  for (double& value : values) value = rng.Uniform(low, high);
  return Set(values);
}

GuardedTensor& GuardedTensor::SetNormal(TestRng& rng, double scale) {
  std::vector<double> values(static_cast<size_t>(size()));
  for (double& value : values) value = scale * rng.Normal();
  return Set(values);
}

GuardedTensor& GuardedTensor::SetIntegers(TestRng& rng, int64_t low, int64_t high) {
  std::vector<double> values(static_cast<size_t>(size()));
  for (double& value : values) value = static_cast<double>(rng.Integer(low, high));
  return Set(values);
}

std::vector<double> GuardedTensor::Get() const {
  const std::vector<uint8_t> bytes = Download();
  std::vector<double> values;
  values.reserve(static_cast<size_t>(size()));
  for (int64_t offset : Offsets()) values.push_back(Load(view_.dtype, bytes.data() + offset));
  return values;
}

std::vector<uint8_t> GuardedTensor::GetBytes() const {
  const std::vector<uint8_t> bytes = Download();
  const int64_t width = DTypeBytes(view_.dtype);
  std::vector<uint8_t> elements;
  for (int64_t offset : Offsets()) {
    elements.insert(elements.end(), bytes.begin() + offset, bytes.begin() + offset + width);
  }
  return elements;
}

::testing::AssertionResult GuardedTensor::GuardsIntact() const {
  std::vector<uint8_t> bytes = Download();
  for (int64_t offset : Offsets()) {
    std::memset(bytes.data() + offset, guard_, static_cast<size_t>(DTypeBytes(view_.dtype)));
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == guard_) continue;
    const int64_t element = (static_cast<int64_t>(i) - kGuardBytes) / DTypeBytes(view_.dtype);
    return ::testing::AssertionFailure()
           << "guard of " << view_.ToString() << " overwritten at byte "
           << static_cast<int64_t>(i) - kGuardBytes << " (element offset " << element << ")";
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult AllClose(const std::vector<double>& actual,
                                    const std::vector<double>& expected, Tolerance tolerance) {
  if (actual.size() != expected.size()) {
    return ::testing::AssertionFailure() << actual.size() << " elements, want " << expected.size();
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    const bool same_kind = std::isnan(expected[i])   ? std::isnan(actual[i])
                           : std::isinf(expected[i]) ? actual[i] == expected[i]
                                                     : std::isfinite(actual[i]);
    if (!same_kind) {
      return ::testing::AssertionFailure()
             << "element " << i << " is " << actual[i] << ", want " << expected[i];
    }
  }
  size_t worst = 0;
  double worst_ratio = -1;
  int64_t outside = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!std::isfinite(expected[i])) continue;
    const double error = std::abs(actual[i] - expected[i]);
    const double allowed = tolerance.absolute + tolerance.relative * std::abs(expected[i]);
    if (error <= allowed) continue;
    ++outside;
    const double ratio = allowed > 0 ? error / allowed : error / 1e-300;
    if (ratio > worst_ratio) {
      worst_ratio = ratio;
      worst = i;
    }
  }
  if (outside == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << outside << " of " << actual.size() << " elements outside the tolerance; worst: element "
         << worst << " is " << actual[worst] << ", want " << expected[worst] << " (difference "
         << std::abs(actual[worst] - expected[worst]) << ", " << worst_ratio << " x allowed)";
}

}  // namespace millrace
