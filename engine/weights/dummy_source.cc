#include "engine/weights/dummy_source.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/weights/deepseek_v4_tensors.h"
#include "engine/weights/llama_tensors.h"
#include "engine/weights/read_slice.h"
#include "engine/weights/safetensors_header.h"
#include "engine/weights/sha256.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"
#include "kernels/lowp/small_float.h"

namespace millrace {
namespace {

constexpr float kDeviation = 0.02f;
// Codes hold such numbers divided by these, which stay within the types' ranges.
constexpr float kE4M3Scale = 0x1p-12f;
constexpr float kE2M1Scale = 0x1p-6f;
// Lets activations up to 14 through.
constexpr float kInputScale = 0x1p-5f;

// A bijection of 64-bit words that leaves no visible pattern (the finaliser of SplitMix64).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// FNV-1a: std::hash may differ between builds, and all ranks must agree.
uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// The sum of four uniform 16-bit numbers is close to normal.
float BellShaped(uint64_t word) {
  const int64_t sum = static_cast<int64_t>(word & 0xffff) +
                      static_cast<int64_t>(word >> 16 & 0xffff) +
                      static_cast<int64_t>(word >> 32 & 0xffff) + static_cast<int64_t>(word >> 48);
  // Mean of the sum 2 * 65535, deviation 65536 / sqrt(3).
  return static_cast<float>(sum - 2 * 65535) * (kDeviation * 1.7320508f / 65536.0f);
}

void Store(float value, DType want, std::byte* dst) {
  if (want == DType::kF32) {
    std::memcpy(dst, &value, sizeof(value));
  } else {
    const BFloat16 narrow = ToBFloat16(value);
    std::memcpy(dst, &narrow, sizeof(narrow));
  }
}

// Calls body for parts that make up `rows`, on threads of their own where that pays: made-up
// weights of a large model are the work of minutes for one.
void ForRowsInParallel(Range rows, int64_t width, const std::function<void(Range)>& body) {
  constexpr int64_t kElementsOfAThread = int64_t{1} << 19;
  const int64_t most = std::max<int64_t>(1, std::thread::hardware_concurrency());
  const int64_t useful = rows.size() * width / kElementsOfAThread;
  const int64_t count = std::clamp<int64_t>(std::min(useful, rows.size()), 1, most);
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < count; ++i) {
    threads.emplace_back([&, i] {
      body({rows.begin + rows.size() * i / count, rows.begin + rows.size() * (i + 1) / count});
    });
  }
  body({rows.begin, rows.begin + rows.size() / count});
  for (std::thread& thread : threads) thread.join();
}

// Calls body(index of the element, where it goes) for each element of a checked box.
template <typename Body>
void ForEachElement(const TensorInfo& tensor, absl::Span<const Range> ranges, int64_t element_bytes,
                    void* dst, const Body& body) {
  const Range rows = ranges.size() == 2 ? ranges[0] : Range{0, 1};
  const Range cols = ranges.empty() ? Range{0, 1} : ranges.back();
  const int64_t width = ranges.empty() ? 1 : tensor.shape.back();
  ForRowsInParallel(rows, cols.size(), [&](Range some) {
    const int64_t skipped = (some.begin - rows.begin) * cols.size();
    auto* out = static_cast<std::byte*>(dst) + skipped * element_bytes;
    for (int64_t row = some.begin; row < some.end; ++row) {
      for (int64_t col = cols.begin; col < cols.end; ++col, out += element_bytes) {
        body(row * width + col, out);
      }
    }
  });
}

absl::Status Refuse(const TensorInfo& tensor, const std::string& reason) {
  return absl::InvalidArgumentError(
      absl::StrCat("dummy weights: tensor ", QuotedTensor(tensor.name), " of ",
                   std::string(FileDTypeName(tensor.dtype)), " ", reason));
}

std::vector<TensorInfo> TensorsOf(const ModelConfig& config) {
  return config.deepseek_v4.has_value() ? DeepSeekV4Tensors(*config.deepseek_v4)
                                        : LlamaTensors(config);
}

}  // namespace

// Of one element of one tensor: where in the sequence of words it draws from.
struct DummySource::Element {
  uint64_t key;
  int64_t index;

  uint64_t Word() const { return Mix(key + static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15u); }
};

DummySource::DummySource(std::vector<TensorInfo> tensors, uint64_t seed, int64_t index_limit)
    : seed_(seed), index_limit_(index_limit) {
  for (TensorInfo& tensor : tensors) {
    std::string name = tensor.name;
    MR_CHECK(tensors_.emplace(std::move(name), Tensor{.info = std::move(tensor)}).second);
  }
  for (auto& [name, tensor] : tensors_) ChooseFill(tensor);
}

DummySource::DummySource(const ModelConfig& config, uint64_t seed)
    : DummySource(TensorsOf(config), seed,
                  config.deepseek_v4.has_value() ? config.deepseek_v4->num_experts : 1) {}

void DummySource::ChooseFill(Tensor& tensor) const {
  const std::string& name = tensor.info.name;
  const auto constant = [&tensor](float value, uint8_t code) {
    tensor.fill = Fill::kConstant;
    tensor.constant = value;
    tensor.code = code;
  };
  const auto ends = [&name](const char* end) { return absl::EndsWith(name, end); };
  switch (tensor.info.dtype) {
    case FileDType::kI64:
      tensor.fill = Fill::kIndex;
      return;
    case FileDType::kI8:
    case FileDType::kU8:
      tensor.fill = Fill::kE2M1;
      return;
    case FileDType::kF8E4M3:
      if (ends(".weight_scale")) return constant(1, EncodeE4M3(1));
      tensor.fill = Fill::kE4M3;
      return;
    case FileDType::kF8E8M0: {
      // The matrix that it scales tells what it scales.
      const auto matrix = tensors_.find(name.substr(0, name.rfind('.')) + ".weight");
      const bool fp8 = matrix != tensors_.end() && matrix->second.info.dtype == FileDType::kF8E4M3;
      const float scale = fp8 ? kE4M3Scale : kE2M1Scale;
      return constant(scale, EncodeE8M0RoundUp(static_cast<double>(scale)));
    }
    default:
      if (ends("norm.weight")) return constant(1, 0);
      for (const char* end : {".scale", ".weight_scale", ".weight_scale_inv"}) {
        if (ends(end)) return constant(kE4M3Scale, 0);
      }
      if (ends(".input_scale")) return constant(kInputScale, 0);
      if (ends(".weight_scale_2")) return constant(kE2M1Scale, 0);
      if (ends(".weight_global_scale")) return constant(1 / kE2M1Scale, 0);
  }
}

absl::StatusOr<const DummySource::Tensor*> DummySource::FindTensor(std::string_view name) const {
  const auto it = tensors_.find(name);
  if (it != tensors_.end()) return &it->second;
  return absl::NotFoundError(
      absl::StrCat("dummy weights: no tensor ", QuotedTensor(name), " in this model"));
}

absl::StatusOr<TensorInfo> DummySource::Find(std::string_view name) const {
  ASSIGN_OR_RETURN(const Tensor* tensor, FindTensor(name));
  return tensor->info;
}

uint64_t DummySource::KeyOf(const Tensor& tensor) const {
  return Mix(HashName(tensor.info.name) ^ Mix(seed_ + 0x9e3779b97f4a7c15u));
}

float DummySource::FloatAt(const Tensor& tensor, Element e) const {
  const float value = tensor.fill == Fill::kConstant ? tensor.constant : BellShaped(e.Word());
  return tensor.info.dtype == FileDType::kBF16 ? ToFloat(ToBFloat16(value)) : value;
}

int64_t DummySource::IndexAt(const Tensor& tensor, Element e) const {
  const int64_t width = tensor.info.shape.empty() ? 1 : tensor.info.shape.back();
  const Element first = {e.key, e.index / width};
  const auto start = static_cast<int64_t>(first.Word() % static_cast<uint64_t>(index_limit_));
  return (start + e.index % width) % index_limit_;
}

uint8_t DummySource::CodeAt(const Tensor& tensor, Element e) const {
  const auto quotient = [](Element of, float scale) {
    return static_cast<double>(BellShaped(of.Word()) / scale);
  };
  switch (tensor.fill) {
    case Fill::kE4M3:
      return EncodeE4M3(quotient(e, kE4M3Scale));
    case Fill::kE2M1: {
      const uint8_t even = EncodeE2M1(quotient({e.key, 2 * e.index}, kE2M1Scale));
      const uint8_t odd = EncodeE2M1(quotient({e.key, 2 * e.index + 1}, kE2M1Scale));
      return static_cast<uint8_t>(even | odd << 4);
    }
    default:
      return tensor.code;
  }
}

absl::Status DummySource::Read(std::string_view name, absl::Span<const Range> ranges, DType want,
                               void* dst) const {
  ASSIGN_OR_RETURN(const Tensor* tensor, FindTensor(name));
  RETURN_IF_ERROR(CheckSlice(tensor->info, ranges));
  const bool index = tensor->fill == Fill::kIndex;
  const bool bytes = FileDTypeBits(tensor->info.dtype) == 8;
  const bool as_float = want == DType::kF32 || want == DType::kBF16;
  if (bytes || (index ? want != DType::kI32 : !as_float)) {
    return Refuse(tensor->info, absl::StrCat("cannot be read as ", std::string(DTypeName(want))));
  }
  const uint64_t key = KeyOf(*tensor);
  ForEachElement(tensor->info, ranges, DTypeBytes(want), dst, [&](int64_t i, std::byte* out) {
    if (index) {
      const auto value = static_cast<int32_t>(IndexAt(*tensor, {key, i}));
      std::memcpy(out, &value, sizeof(value));
    } else {
      Store(FloatAt(*tensor, {key, i}), want, out);
    }
  });
  return absl::OkStatus();
}

absl::Status DummySource::ReadRaw(std::string_view name, absl::Span<const Range> ranges,
                                  void* dst) const {
  ASSIGN_OR_RETURN(const Tensor* tensor, FindTensor(name));
  RETURN_IF_ERROR(CheckSlice(tensor->info, ranges));
  const FileDType dtype = tensor->info.dtype;
  const bool as_float = dtype == FileDType::kF32 || dtype == FileDType::kBF16;
  if (!as_float && FileDTypeBits(dtype) != 8) return Refuse(tensor->info, "cannot be read raw");
  const uint64_t key = KeyOf(*tensor);
  const int64_t element_bytes = FileDTypeBits(dtype) / 8;
  ForEachElement(tensor->info, ranges, element_bytes, dst, [&](int64_t i, std::byte* out) {
    if (as_float) {
      Store(FloatAt(*tensor, {key, i}), dtype == FileDType::kF32 ? DType::kF32 : DType::kBF16, out);
    } else {
      *out = std::byte{CodeAt(*tensor, {key, i})};
    }
  });
  return absl::OkStatus();
}

std::vector<std::string> DummySource::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

absl::StatusOr<std::string> DummySource::Fingerprint() const {
  Sha256 sum;
  sum.AddField("dummy");
  sum.AddField(static_cast<int64_t>(seed_));
  for (const auto& [name, tensor] : tensors_) {
    sum.AddField(name);
    sum.AddField(FileDTypeName(tensor.info.dtype));
    sum.AddField(ShapeString(tensor.info.shape));
  }
  return sum.Hex();
}

}  // namespace millrace
