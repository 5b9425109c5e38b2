#include "distributed/comm/conformance.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/core/dtype.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

// Slots of the transports hold 256 KiB: sizes below, at and above, and awkward ones.
constexpr int64_t kSizes[] = {0, 1, 3, 576, 1031, 65535, 65536, 65537, 131072, 300007};

// A number that depends on everything; rounding in a sum of them differs with the order.
float Noise(int32_t rank, int64_t i, int64_t salt) {
  uint64_t x = static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u +
               static_cast<uint64_t>(rank) * 7919u + static_cast<uint64_t>(salt) * 104729u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 32;
  return (static_cast<float>(x % 2000003u) - 1000001.0f) / 997.0f;
}

absl::Status Wrong(const Communicator& c, const std::string& what) {
  return absl::InternalError(
      absl::StrCat("conformance: rank ", c.rank(), " of ", c.size(), ": ", what));
}

absl::Status SumF32(Communicator& c, int64_t n) {
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i) x.push_back(Noise(c.rank(), i, n));
  RETURN_IF_ERROR(c.AllReduceSum(TensorView::Of(x.data(), DType::kF32, {n}), {}));
  for (int64_t i = 0; i < n; ++i) {
    float want = Noise(0, i, n);
    for (int32_t r = 1; r < c.size(); ++r) want += Noise(r, i, n);
    if (x[static_cast<size_t>(i)] != want) {
      return Wrong(c, absl::StrCat("sum of ", n, " float32: element ", i, " = ",
                                   x[static_cast<size_t>(i)], ", want ", want));
    }
  }
  return absl::OkStatus();
}

absl::Status SumBF16(Communicator& c, int64_t n) {
  std::vector<BFloat16> x;
  for (int64_t i = 0; i < n; ++i) x.push_back(ToBFloat16(Noise(c.rank(), i, n)));
  RETURN_IF_ERROR(c.AllReduceSum(TensorView::Of(x.data(), DType::kBF16, {n}), {}));
  for (int64_t i = 0; i < n; ++i) {
    float sum = 0;
    for (int32_t r = 0; r < c.size(); ++r) sum += ToFloat(ToBFloat16(Noise(r, i, n)));
    if (ToFloat(x[static_cast<size_t>(i)]) != ToFloat(ToBFloat16(sum))) {
      return Wrong(c, absl::StrCat("sum of ", n, " bfloat16: element ", i, " = ",
                                   ToFloat(x[static_cast<size_t>(i)]), ", want ", sum));
    }
  }
  return absl::OkStatus();
}

// NaN and Inf of one rank reach all.
absl::Status SumSpecials(Communicator& c) {
  const bool last = c.rank() == c.size() - 1;
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> x = {last ? std::nanf("") : 1.0f, last ? inf : 1.0f, 2.0f};
  RETURN_IF_ERROR(c.AllReduceSum(TensorView::Of(x.data(), DType::kF32, {3}), {}));
  if (!std::isnan(x[0]) || x[1] != inf || x[2] != 2.0f * static_cast<float>(c.size())) {
    return Wrong(c, absl::StrCat("sum with NaN and Inf: ", x[0], " ", x[1], " ", x[2]));
  }
  return absl::OkStatus();
}

// Rank r brings n * r elements, and rank 0 none.
absl::Status Gather(Communicator& c, int64_t n) {
  std::vector<int64_t> counts;
  std::vector<int32_t> want;
  for (int32_t r = 0; r < c.size(); ++r) {
    counts.push_back(n * r);
    for (int64_t i = 0; i < n * r; ++i) want.push_back(static_cast<int32_t>(i * 64 + r));
  }
  std::vector<int32_t> in;
  for (int64_t i = 0; i < n * c.rank(); ++i) in.push_back(static_cast<int32_t>(i * 64 + c.rank()));
  std::vector<int32_t> out(want.size(), -1);
  const auto view = [](std::vector<int32_t>& v) {
    return TensorView::Of(v.data(), DType::kI32, {static_cast<int64_t>(v.size())});
  };
  RETURN_IF_ERROR(c.AllGather(view(in), counts.data(), view(out), {}));
  if (out != want) return Wrong(c, absl::StrCat("all-gather of ", n, " x rank int32"));
  return absl::OkStatus();
}

absl::Status GatherBytes(Communicator& c) {
  const std::vector<int64_t> counts(static_cast<size_t>(c.size()), 1);
  uint8_t mine = static_cast<uint8_t>(c.rank() + 5);
  std::vector<uint8_t> out(static_cast<size_t>(c.size()));
  RETURN_IF_ERROR(c.AllGather(TensorView::Of(&mine, DType::kU8, {1}), counts.data(),
                              TensorView::Of(out.data(), DType::kU8, {c.size()}), {}));
  for (int32_t r = 0; r < c.size(); ++r) {
    if (out[static_cast<size_t>(r)] != r + 5) return Wrong(c, "all-gather of one byte each");
  }
  return absl::OkStatus();
}

absl::Status Broadcast(Communicator& c, int64_t n) {
  for (int32_t root = 0; root < c.size(); ++root) {
    std::vector<float> x;
    for (int64_t i = 0; i < n; ++i) x.push_back(Noise(c.rank(), i, root));
    RETURN_IF_ERROR(c.Broadcast(TensorView::Of(x.data(), DType::kF32, {n}), root, {}));
    for (int64_t i = 0; i < n; ++i) {
      if (x[static_cast<size_t>(i)] != Noise(root, i, root)) {
        return Wrong(c, absl::StrCat("broadcast of ", n, " from ", root, ": element ", i));
      }
    }
  }
  return absl::OkStatus();
}

// Bad arguments are refused on the spot and leave the group in order.
absl::Status Refusals(Communicator& c) {
  std::vector<int32_t> x(8);
  const TensorView ints = TensorView::Of(x.data(), DType::kI32, {8});
  const TensorView floats = TensorView::Of(x.data(), DType::kF32, {2, 4});
  std::vector<int64_t> counts(static_cast<size_t>(c.size()), 3);
  if (c.AllReduceSum(ints, {}).code() != absl::StatusCode::kInvalidArgument ||
      c.AllReduceSum(floats.Cols(0, 2), {}).code() != absl::StatusCode::kInvalidArgument ||
      c.Broadcast(floats, c.size(), {}).code() != absl::StatusCode::kInvalidArgument ||
      c.AllGather(ints, counts.data(), ints, {}).code() != absl::StatusCode::kInvalidArgument) {
    return Wrong(c, "a bad argument was not refused with INVALID_ARGUMENT");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCollectives(Communicator& c) {
  RETURN_IF_ERROR(c.Barrier({}));
  for (const int64_t n : kSizes) {
    RETURN_IF_ERROR(SumF32(c, n));
    RETURN_IF_ERROR(SumBF16(c, n));
    RETURN_IF_ERROR(Broadcast(c, n));
    RETURN_IF_ERROR(Gather(c, n));
  }
  RETURN_IF_ERROR(SumSpecials(c));
  RETURN_IF_ERROR(GatherBytes(c));
  RETURN_IF_ERROR(Refusals(c));
  // Many small ones in a row: slots are used again and again.
  for (int64_t i = 0; i < 300; ++i) RETURN_IF_ERROR(SumF32(c, 1 + i % 7));
  return c.Barrier({});
}

absl::Status CheckAbort(Communicator& c) {
  float x = 1.0f;
  const TensorView view = TensorView::Of(&x, DType::kF32, {1});
  if (c.rank() == 0) {
    c.Abort();
  } else if (c.AllReduceSum(view, {}).code() != absl::StatusCode::kUnavailable) {
    return Wrong(c, "a collective without the rank that aborted did not end UNAVAILABLE");
  }
  if (c.Barrier({}).code() != absl::StatusCode::kUnavailable) {
    return Wrong(c, "a collective after an abort did not end UNAVAILABLE");
  }
  return absl::OkStatus();
}

}  // namespace millrace
