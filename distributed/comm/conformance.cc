#include "distributed/comm/conformance.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
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

// A vector of the host as the collectives see it: itself, or a copy on the device.
template <typename T>
class Staged final {
 public:
  static absl::StatusOr<Staged> Of(const ConformanceBed& bed, std::vector<T>& host, DType dtype) {
    Staged staged(bed, host);
    const int64_t n = static_cast<int64_t>(host.size());
    staged.view_ = TensorView::Of(host.data(), dtype, {n});
    if (bed.device == nullptr) return staged;
    ASSIGN_OR_RETURN(staged.buffer_, bed.device->Allocate(staged.bytes()));
    if (n > 0) {
      RETURN_IF_ERROR(bed.device->Copy(staged.buffer_.data(), host.data(), staged.bytes(),
                                       CopyKind::kHostToDevice, bed.stream));
    }
    staged.view_ = TensorView::Of(staged.buffer_.data(), dtype, {n}, bed.device->type());
    return staged;
  }

  const TensorView& view() const { return view_; }

  // Makes the host's vector what the collectives left.
  absl::Status Fetch() {
    if (bed_->device == nullptr || host_->empty()) return absl::OkStatus();
    RETURN_IF_ERROR(bed_->device->Copy(host_->data(), buffer_.data(), bytes(),
                                       CopyKind::kDeviceToHost, bed_->stream));
    return bed_->device->Synchronize(bed_->stream);
  }

 private:
  Staged(const ConformanceBed& bed, std::vector<T>& host) : bed_(&bed), host_(&host) {}
  int64_t bytes() const { return static_cast<int64_t>(host_->size() * sizeof(T)); }

  const ConformanceBed* bed_;
  std::vector<T>* host_;
  Buffer buffer_;
  TensorView view_;
};

// One rank's run of the suite.
class Suite final {
 public:
  Suite(Communicator& communicator, const ConformanceBed& bed) : c_(communicator), bed_(bed) {}

  absl::Status SumF32(int64_t n) {
    std::vector<float> x;
    for (int64_t i = 0; i < n; ++i) x.push_back(Noise(c_.rank(), i, n));
    RETURN_IF_ERROR(Sum(x, DType::kF32));
    for (int64_t i = 0; i < n; ++i) {
      float want = Noise(0, i, n);
      for (int32_t r = 1; r < c_.size(); ++r) want += Noise(r, i, n);
      const float got = x[static_cast<size_t>(i)];
      if (!IsSum(got, want, 1e-6f * kLargest)) {
        return Wrong(
            c_, absl::StrCat("sum of ", n, " float32: element ", i, " = ", got, ", want ", want));
      }
    }
    return SameOnAllRanks(x);
  }

  absl::Status SumBF16(int64_t n) {
    std::vector<BFloat16> x;
    for (int64_t i = 0; i < n; ++i) x.push_back(ToBFloat16(Noise(c_.rank(), i, n)));
    RETURN_IF_ERROR(Sum(x, DType::kBF16));
    for (int64_t i = 0; i < n; ++i) {
      float sum = 0;
      for (int32_t r = 0; r < c_.size(); ++r) sum += ToFloat(ToBFloat16(Noise(r, i, n)));
      const float got = ToFloat(x[static_cast<size_t>(i)]);
      if (!IsSum(got, ToFloat(ToBFloat16(sum)), kLargest / 256)) {
        return Wrong(
            c_, absl::StrCat("sum of ", n, " bfloat16: element ", i, " = ", got, ", want ", sum));
      }
    }
    return SameOnAllRanks(x);
  }

  // NaN and Inf of one rank reach all.
  absl::Status SumSpecials() {
    const bool last = c_.rank() == c_.size() - 1;
    const float inf = std::numeric_limits<float>::infinity();
    std::vector<float> x = {last ? std::nanf("") : 1.0f, last ? inf : 1.0f, 2.0f};
    RETURN_IF_ERROR(Sum(x, DType::kF32));
    if (!std::isnan(x[0]) || x[1] != inf || x[2] != 2.0f * static_cast<float>(c_.size())) {
      return Wrong(c_, absl::StrCat("sum with NaN and Inf: ", x[0], " ", x[1], " ", x[2]));
    }
    return absl::OkStatus();
  }

  // Rank r brings n * r elements, and rank 0 none; or n each.
  absl::Status Gather(int64_t n, bool equal) {
    const auto count = [&](int32_t r) { return equal ? n : n * r; };
    std::vector<int64_t> counts;
    std::vector<int32_t> want;
    for (int32_t r = 0; r < c_.size(); ++r) {
      counts.push_back(count(r));
      for (int64_t i = 0; i < count(r); ++i) want.push_back(static_cast<int32_t>(i * 64 + r));
    }
    std::vector<int32_t> in;
    for (int64_t i = 0; i < count(c_.rank()); ++i) {
      in.push_back(static_cast<int32_t>(i * 64 + c_.rank()));
    }
    std::vector<int32_t> out(want.size(), -1);
    RETURN_IF_ERROR(Gather(in, counts, out, DType::kI32));
    if (out != want) {
      return Wrong(c_, absl::StrCat("all-gather of ", n, equal ? "" : " x rank", " int32"));
    }
    return absl::OkStatus();
  }

  absl::Status GatherBytes() {
    const std::vector<int64_t> counts(static_cast<size_t>(c_.size()), 1);
    std::vector<uint8_t> mine = {static_cast<uint8_t>(c_.rank() + 5)};
    std::vector<uint8_t> out(static_cast<size_t>(c_.size()));
    RETURN_IF_ERROR(Gather(mine, counts, out, DType::kU8));
    for (int32_t r = 0; r < c_.size(); ++r) {
      if (out[static_cast<size_t>(r)] != r + 5) return Wrong(c_, "all-gather of one byte each");
    }
    return absl::OkStatus();
  }

  // Rank r sends n * r + i elements to rank i; rank 0 none to itself.
  absl::Status Exchange(int64_t n) {
    const auto count = [n](int32_t from, int32_t to) { return n * from + to; };
    const auto element = [](int32_t from, int32_t to, int64_t i) {
      return static_cast<int32_t>((i * 64 + from) * 64 + to);
    };
    std::vector<int64_t> send, receive;
    std::vector<int32_t> in, want;
    for (int32_t r = 0; r < c_.size(); ++r) {
      send.push_back(count(c_.rank(), r));
      receive.push_back(count(r, c_.rank()));
      for (int64_t i = 0; i < send.back(); ++i) in.push_back(element(c_.rank(), r, i));
      for (int64_t i = 0; i < receive.back(); ++i) want.push_back(element(r, c_.rank(), i));
    }
    std::vector<int32_t> out(want.size(), -1);
    ASSIGN_OR_RETURN(Staged<int32_t> from, Staged<int32_t>::Of(bed_, in, DType::kI32));
    ASSIGN_OR_RETURN(Staged<int32_t> to, Staged<int32_t>::Of(bed_, out, DType::kI32));
    RETURN_IF_ERROR(c_.AllToAll(from.view(), send.data(), to.view(), receive.data(), bed_.stream));
    RETURN_IF_ERROR(to.Fetch());
    if (out != want) return Wrong(c_, absl::StrCat("all-to-all of ", n, " x rank int32"));
    return absl::OkStatus();
  }

  absl::Status Broadcast(int64_t n) {
    for (int32_t root = 0; root < c_.size(); ++root) {
      std::vector<float> x;
      for (int64_t i = 0; i < n; ++i) x.push_back(Noise(c_.rank(), i, root));
      ASSIGN_OR_RETURN(Staged<float> staged, Staged<float>::Of(bed_, x, DType::kF32));
      RETURN_IF_ERROR(c_.Broadcast(staged.view(), root, bed_.stream));
      RETURN_IF_ERROR(staged.Fetch());
      for (int64_t i = 0; i < n; ++i) {
        if (x[static_cast<size_t>(i)] != Noise(root, i, root)) {
          return Wrong(c_, absl::StrCat("broadcast of ", n, " from ", root, ": element ", i));
        }
      }
    }
    return absl::OkStatus();
  }

  // Bad arguments are refused on the spot and leave the group in order.
  absl::Status Refusals() {
    std::vector<int32_t> x(8);
    ASSIGN_OR_RETURN(const Staged<int32_t> staged, Staged<int32_t>::Of(bed_, x, DType::kI32));
    const TensorView ints = staged.view();
    const TensorView floats = TensorView::Of(ints.data, DType::kF32, {2, 4}, ints.device);
    TensorView elsewhere = floats;
    elsewhere.device = ints.device == DeviceType::kCpu ? DeviceType::kCuda : DeviceType::kCpu;
    std::vector<int64_t> counts(static_cast<size_t>(c_.size()), 3);
    const auto refused = [](const absl::Status& status) {
      return status.code() == absl::StatusCode::kInvalidArgument;
    };
    if (!refused(c_.AllReduceSum(ints, bed_.stream)) ||
        !refused(c_.AllReduceSum(floats.Cols(0, 2), bed_.stream)) ||
        !refused(c_.AllReduceSum(elsewhere, bed_.stream)) ||
        !refused(c_.Broadcast(floats, c_.size(), bed_.stream)) ||
        !refused(c_.AllGather(ints, counts.data(), ints, bed_.stream)) ||
        !refused(c_.AllToAll(ints, counts.data(), ints, counts.data(), bed_.stream))) {
      return Wrong(c_, "a bad argument was not refused with INVALID_ARGUMENT");
    }
    return absl::OkStatus();
  }

 private:
  static constexpr float kLargest = 1003.1f;  // that Noise gives

  template <typename T>
  absl::Status Sum(std::vector<T>& x, DType dtype) {
    ASSIGN_OR_RETURN(Staged<T> staged, Staged<T>::Of(bed_, x, dtype));
    RETURN_IF_ERROR(c_.AllReduceSum(staged.view(), bed_.stream));
    return staged.Fetch();
  }

  // `rounding`: the most that one addition may be off.
  bool IsSum(float got, float want, float rounding) const {
    if (bed_.sums_in_rank_order) return got == want;
    const float ranks = static_cast<float>(c_.size());
    return std::fabs(got - want) <= rounding * ranks * ranks;
  }

  template <typename T>
  absl::Status Gather(std::vector<T>& in, const std::vector<int64_t>& counts, std::vector<T>& out,
                      DType dtype) {
    ASSIGN_OR_RETURN(const Staged<T> from, Staged<T>::Of(bed_, in, dtype));
    ASSIGN_OR_RETURN(Staged<T> to, Staged<T>::Of(bed_, out, dtype));
    RETURN_IF_ERROR(c_.AllGather(from.view(), counts.data(), to.view(), bed_.stream));
    return to.Fetch();
  }

  // Where the numbers do not say so already.
  template <typename T>
  absl::Status SameOnAllRanks(const std::vector<T>& x) {
    if (bed_.sums_in_rank_order) return absl::OkStatus();
    const size_t bytes = x.size() * sizeof(T);
    std::vector<uint8_t> mine(bytes);
    if (bytes > 0) std::memcpy(mine.data(), x.data(), bytes);
    std::vector<uint8_t> all(bytes * static_cast<size_t>(c_.size()));
    const std::vector<int64_t> counts(static_cast<size_t>(c_.size()), static_cast<int64_t>(bytes));
    RETURN_IF_ERROR(Gather(mine, counts, all, DType::kU8));
    for (size_t r = 0; r < static_cast<size_t>(c_.size()) && bytes > 0; ++r) {
      if (std::memcmp(mine.data(), all.data() + r * bytes, bytes) != 0) {
        return Wrong(c_, absl::StrCat("a sum has other bits on rank ", r));
      }
    }
    return absl::OkStatus();
  }

  Communicator& c_;
  const ConformanceBed& bed_;
};

}  // namespace

absl::Status CheckCollectives(Communicator& c, const ConformanceBed& bed) {
  Suite suite(c, bed);
  RETURN_IF_ERROR(c.Barrier(bed.stream));
  for (const int64_t n : kSizes) {
    RETURN_IF_ERROR(suite.SumF32(n));
    RETURN_IF_ERROR(suite.SumBF16(n));
    RETURN_IF_ERROR(suite.Broadcast(n));
    RETURN_IF_ERROR(suite.Gather(n, /*equal=*/false));
    RETURN_IF_ERROR(suite.Gather(n, /*equal=*/true));
    RETURN_IF_ERROR(suite.Exchange(n));
  }
  RETURN_IF_ERROR(suite.SumSpecials());
  RETURN_IF_ERROR(suite.GatherBytes());
  RETURN_IF_ERROR(suite.Refusals());
  // Many small ones in a row: slots are used again and again.
  for (int64_t i = 0; i < 300; ++i) RETURN_IF_ERROR(suite.SumF32(1 + i % 7));
  return c.Barrier(bed.stream);
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
