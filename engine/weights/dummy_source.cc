#include "engine/weights/dummy_source.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/weights/llama_tensors.h"
#include "engine/weights/read_slice.h"
#include "engine/weights/safetensors_header.h"
#include "engine/weights/sha256.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr float kDeviation = 0.02f;

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

}  // namespace

DummySource::DummySource(std::vector<TensorInfo> tensors, uint64_t seed) : seed_(seed) {
  for (TensorInfo& tensor : tensors) {
    std::string name = tensor.name;
    MR_CHECK(tensors_.emplace(std::move(name), std::move(tensor)).second);
  }
}

DummySource::DummySource(const ModelConfig& config, uint64_t seed)
    : DummySource(LlamaTensors(config), seed) {
  MR_CHECK(config.family == ModelFamily::kLlama);
}

absl::StatusOr<TensorInfo> DummySource::Find(std::string_view name) const {
  const auto it = tensors_.find(name);
  if (it != tensors_.end()) return it->second;
  return absl::NotFoundError(
      absl::StrCat("dummy weights: no tensor ", QuotedTensor(name), " in this model"));
}

absl::Status DummySource::Read(std::string_view name, absl::Span<const Range> ranges, DType want,
                               void* dst) const {
  ASSIGN_OR_RETURN(const TensorInfo tensor, Find(name));
  RETURN_IF_ERROR(CheckSlice(tensor, ranges));
  const bool is_norm = absl::EndsWith(tensor.name, "norm.weight");
  const uint64_t key = Mix(HashName(name) ^ Mix(seed_ + 0x9e3779b97f4a7c15u));
  const Range rows = ranges.size() == 2 ? ranges[0] : Range{0, 1};
  const Range cols = ranges.back();
  const int64_t width = tensor.shape.back();
  ForRowsInParallel(rows, cols.size(), [&](Range some) {
    auto* out =
        static_cast<std::byte*>(dst) + (some.begin - rows.begin) * cols.size() * DTypeBytes(want);
    for (int64_t row = some.begin; row < some.end; ++row) {
      for (int64_t col = cols.begin; col < cols.end; ++col) {
        const auto index = static_cast<uint64_t>(row * width + col);
        float value = is_norm ? 1.0f : BellShaped(Mix(key + index * 0x9e3779b97f4a7c15u));
        if (tensor.dtype == FileDType::kBF16) value = ToFloat(ToBFloat16(value));
        Store(value, want, out);
        out += DTypeBytes(want);
      }
    }
  });
  return absl::OkStatus();
}

absl::Status DummySource::ReadRaw(std::string_view name, absl::Span<const Range> ranges,
                                  void* dst) const {
  return absl::UnimplementedError("dummy weights in this format");
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
    sum.AddField(FileDTypeName(tensor.dtype));
    sum.AddField(ShapeString(tensor.shape));
  }
  return sum.Hex();
}

}  // namespace millrace
