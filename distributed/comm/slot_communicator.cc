#include "distributed/comm/slot_communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

absl::Status CheckTensor(const char* operation, const char* name, const TensorView& x) {
  if (x.device != DeviceType::kCpu || !x.contiguous()) {
    return absl::InvalidArgumentError(
        absl::StrCat(operation, ": ", name, " must be contiguous and on cpu: ", x.ToString()));
  }
  return absl::OkStatus();
}

void SumF32(const SlotTransport& slots, float* out, int64_t n) {
  const auto part = [&](int32_t rank) {
    return reinterpret_cast<const float*>(slots.incoming(rank));
  };
  const float* first = part(0);
  const float* second = part(1);
  for (int64_t i = 0; i < n; ++i) out[i] = first[i] + second[i];
  for (int32_t r = 2; r < slots.size(); ++r) {
    const float* next = part(r);
    for (int64_t i = 0; i < n; ++i) out[i] += next[i];
  }
}

void SumBF16(const SlotTransport& slots, BFloat16* out, int64_t n) {
  constexpr int64_t kBlock = 512;
  std::array<float, kBlock> sum;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    sum.fill(0.0f);
    for (int32_t r = 0; r < slots.size(); ++r) {
      const BFloat16* part = reinterpret_cast<const BFloat16*>(slots.incoming(r)) + begin;
      for (int64_t i = 0; i < count; ++i) sum[static_cast<size_t>(i)] += ToFloat(part[i]);
    }
    for (int64_t i = 0; i < count; ++i) out[begin + i] = ToBFloat16(sum[static_cast<size_t>(i)]);
  }
}

}  // namespace

SlotCommunicator::SlotCommunicator(std::unique_ptr<SlotTransport> transport)
    : transport_(std::move(transport)) {}

absl::Status SlotCommunicator::Exchange(const char* operation, int64_t bytes) {
  if (!dead_.ok()) return dead_;
  const absl::Status status = transport_->Exchange(bytes);
  if (!status.ok()) {
    dead_ = absl::Status(status.code(), absl::StrCat(operation, ": ", status.message()));
    transport_->Abort();
  }
  return dead_;
}

absl::Status SlotCommunicator::AllReduceSum(const TensorView& x, Stream) {
  RETURN_IF_ERROR(CheckTensor("AllReduceSum", "x", x));
  if (x.dtype != DType::kF32 && x.dtype != DType::kBF16) {
    return absl::InvalidArgumentError(
        absl::StrCat("AllReduceSum: x must be float32 or bfloat16: ", x.ToString()));
  }
  if (size() == 1) return absl::OkStatus();
  const int64_t width = DTypeBytes(x.dtype);
  const int64_t total = x.size();
  const int64_t per_round = transport_->slot_bytes() / width;
  for (int64_t begin = 0; begin < total; begin += per_round) {
    const int64_t count = std::min(per_round, total - begin);
    std::byte* data = x.as<std::byte>() + begin * width;
    std::memcpy(transport_->outgoing(), data, static_cast<size_t>(count * width));
    RETURN_IF_ERROR(Exchange("AllReduceSum", count * width));
    if (x.dtype == DType::kF32) {
      SumF32(*transport_, reinterpret_cast<float*>(data), count);
    } else {
      SumBF16(*transport_, reinterpret_cast<BFloat16*>(data), count);
    }
  }
  return absl::OkStatus();
}

absl::Status SlotCommunicator::AllGather(const TensorView& in, const int64_t* counts,
                                         const TensorView& out, Stream) {
  RETURN_IF_ERROR(CheckTensor("AllGather", "in", in));
  RETURN_IF_ERROR(CheckTensor("AllGather", "out", out));
  const int64_t width = DTypeBytes(in.dtype);
  std::vector<int64_t> offsets;  // of each rank's part of `out`, in bytes
  int64_t total = 0;
  int64_t longest = 0;
  for (int32_t r = 0; r < size(); ++r) {
    offsets.push_back(total * width);
    total += counts[r];
    longest = std::max(longest, counts[r]);
  }
  if (in.dtype != out.dtype || in.size() != counts[rank()] || out.size() != total) {
    return absl::InvalidArgumentError(absl::StrCat("AllGather: in ", in.ToString(), ", out ",
                                                   out.ToString(), ", want ", counts[rank()],
                                                   " elements in and ", total, " out"));
  }
  const int64_t per_round = transport_->slot_bytes() / width * width;
  for (int64_t begin = 0; begin < longest * width; begin += per_round) {
    // Bytes of this round that come from a rank.
    const auto part = [&](int32_t r) {
      return std::clamp<int64_t>(counts[r] * width - begin, 0, per_round);
    };
    if (part(rank()) > 0) {
      std::memcpy(transport_->outgoing(), in.as<std::byte>() + begin,
                  static_cast<size_t>(part(rank())));
    }
    RETURN_IF_ERROR(Exchange("AllGather", part(rank())));
    for (int32_t r = 0; r < size(); ++r) {
      if (part(r) == 0) continue;
      std::memcpy(out.as<std::byte>() + offsets[static_cast<size_t>(r)] + begin,
                  transport_->incoming(r), static_cast<size_t>(part(r)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SlotCommunicator::Sent>> SlotCommunicator::ExchangeCounts(
    const int64_t* send, const int64_t* receive) {
  const size_t bytes = sizeof(int64_t) * static_cast<size_t>(size());
  std::memcpy(transport_->outgoing(), send, bytes);
  RETURN_IF_ERROR(Exchange("AllToAll", static_cast<int64_t>(bytes)));
  std::vector<Sent> sent;
  for (int32_t r = 0; r < size(); ++r) {
    std::vector<int64_t> counts(static_cast<size_t>(size()));
    std::memcpy(counts.data(), transport_->incoming(r), bytes);
    const auto mine = counts.begin() + rank();
    sent.push_back({.begin = std::accumulate(counts.begin(), mine, int64_t{0}),
                    .total = std::accumulate(counts.begin(), counts.end(), int64_t{0})});
    if (*mine == receive[r]) continue;
    dead_ = absl::InternalError(absl::StrCat("AllToAll: rank ", r, " sends ", *mine,
                                             " elements to rank ", rank(), ", which wants ",
                                             receive[r]));
    transport_->Abort();
    return dead_;
  }
  return sent;
}

absl::Status SlotCommunicator::AllToAll(const TensorView& in, const int64_t* send,
                                        const TensorView& out, const int64_t* receive, Stream) {
  RETURN_IF_ERROR(CheckTensor("AllToAll", "in", in));
  RETURN_IF_ERROR(CheckTensor("AllToAll", "out", out));
  const int64_t to_send = std::accumulate(send, send + size(), int64_t{0});
  const int64_t to_receive = std::accumulate(receive, receive + size(), int64_t{0});
  if (in.dtype != out.dtype || in.size() != to_send || out.size() != to_receive) {
    return absl::InvalidArgumentError(absl::StrCat("AllToAll: in ", in.ToString(), ", out ",
                                                   out.ToString(), ", want ", to_send,
                                                   " elements in and ", to_receive, " out"));
  }
  ASSIGN_OR_RETURN(const std::vector<Sent> sent, ExchangeCounts(send, receive));
  int64_t longest = 0;
  for (const Sent& s : sent) longest = std::max(longest, s.total);
  const int64_t width = DTypeBytes(in.dtype);
  const int64_t per_round = transport_->slot_bytes() / width;
  for (int64_t begin = 0; begin < longest; begin += per_round) {
    const int64_t count = std::clamp<int64_t>(to_send - begin, 0, per_round);
    if (count > 0) {
      std::memcpy(transport_->outgoing(), in.as<std::byte>() + begin * width,
                  static_cast<size_t>(count * width));
    }
    RETURN_IF_ERROR(Exchange("AllToAll", count * width));
    std::byte* part = out.as<std::byte>();
    for (int32_t r = 0; r < size(); ++r) {
      // What of this rank's part is in the round.
      const int64_t first = sent[static_cast<size_t>(r)].begin;
      const int64_t from = std::max(first, begin);
      const int64_t to = std::min(first + receive[r], begin + per_round);
      if (from < to) {
        std::memcpy(part + (from - first) * width, transport_->incoming(r) + (from - begin) * width,
                    static_cast<size_t>((to - from) * width));
      }
      part += receive[r] * width;
    }
  }
  return absl::OkStatus();
}

absl::Status SlotCommunicator::Broadcast(const TensorView& x, int32_t root, Stream) {
  RETURN_IF_ERROR(CheckTensor("Broadcast", "x", x));
  if (root < 0 || root >= size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Broadcast: root = ", root, ", want a rank below ", size()));
  }
  const int64_t total = x.size() * DTypeBytes(x.dtype);
  for (int64_t begin = 0; begin < total; begin += transport_->slot_bytes()) {
    const size_t bytes = static_cast<size_t>(std::min(transport_->slot_bytes(), total - begin));
    std::byte* data = x.as<std::byte>() + begin;
    if (rank() == root) std::memcpy(transport_->outgoing(), data, bytes);
    RETURN_IF_ERROR(Exchange("Broadcast", rank() == root ? static_cast<int64_t>(bytes) : 0));
    if (rank() != root) std::memcpy(data, transport_->incoming(root), bytes);
  }
  return absl::OkStatus();
}

absl::Status SlotCommunicator::Barrier(Stream) { return Exchange("Barrier", 0); }

}  // namespace millrace
