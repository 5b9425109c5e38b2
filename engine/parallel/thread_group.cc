#include "engine/parallel/thread_group.h"

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/parallel/shard.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

enum class Collective : uint8_t { kAllReduceSum, kAllGather, kAllToAll, kBroadcast, kBarrier };

constexpr const char* kNames[] = {"AllReduceSum", "AllGather", "AllToAll", "Broadcast", "Barrier"};

const char* Name(Collective c) { return kNames[static_cast<size_t>(c)]; }

// What a rank brings to a collective.
struct Offer {
  Collective collective = Collective::kBarrier;
  TensorView in;
  int64_t elements = 0;  // that must agree on all ranks
  int32_t root = 0;
  const int64_t* send = nullptr;  // AllToAll: elements for each rank
};

template <typename T, typename ToF32, typename FromF32>
void SumSlice(const std::vector<Offer>& offers, Range slice, ToF32 to_f32, FromF32 from_f32) {
  for (int64_t i = slice.begin; i < slice.end; ++i) {
    float sum = to_f32(offers[0].in.as<T>()[i]);
    for (size_t r = 1; r < offers.size(); ++r) sum += to_f32(offers[r].in.as<T>()[i]);
    const T result = from_f32(sum);
    for (const Offer& offer : offers) offer.in.as<T>()[i] = result;
  }
}

}  // namespace

// A collective is: meet (fails on abort or time-out, for all ranks or for none), work on each
// other's memory, part. Parting cannot fail: all ranks are past the meeting and will come, and none
// may leave, and free its memory, while another still works on it.
class ThreadGroup::Shared final {
 public:
  Shared(int32_t size, absl::Duration timeout)
      : timeout_(absl::ToChronoNanoseconds(timeout)), offers_(static_cast<size_t>(size)) {}

  absl::Status Meet(int32_t rank, const Offer& offer) {
    std::unique_lock<std::mutex> lock(mu_);
    if (!failure_.ok()) return failure_;
    offers_[static_cast<size_t>(rank)] = offer;
    if (++arrived_ == size()) {
      if (absl::Status status = CheckAgreement(); !status.ok()) return Fail(status);
      Advance();
      return absl::OkStatus();
    }
    const uint64_t meeting = generation_;
    const bool in_time =
        changed_.wait_for(lock, timeout_, [&] { return generation_ != meeting || !failure_.ok(); });
    if (generation_ != meeting) return absl::OkStatus();
    if (in_time) return failure_;
    return Fail(absl::DeadlineExceededError(
        absl::StrCat(Name(offer.collective), ": rank ", rank, " waited ",
                     absl::FormatDuration(absl::FromChrono(timeout_)), " for ", size() - arrived_,
                     " of ", size(), " ranks")));
  }

  void Part() {
    std::unique_lock<std::mutex> lock(mu_);
    if (++arrived_ == size()) return Advance();
    const uint64_t parting = generation_;
    changed_.wait(lock, [&] { return generation_ != parting; });
  }

  void Abort() {
    const std::lock_guard<std::mutex> lock(mu_);
    if (failure_.ok()) failure_ = absl::UnavailableError("the group of ranks was aborted");
    changed_.notify_all();
  }

  int32_t size() const { return static_cast<int32_t>(offers_.size()); }
  // Between Meet and Part only: nobody writes them then.
  const std::vector<Offer>& offers() const { return offers_; }

 private:
  void Advance() {
    arrived_ = 0;
    ++generation_;
    changed_.notify_all();
  }

  absl::Status Fail(absl::Status status) {
    failure_ = std::move(status);
    changed_.notify_all();
    return failure_;
  }

  absl::Status CheckAgreement() const {
    const Offer& first = offers_[0];
    for (const Offer& offer : offers_) {
      if (offer.collective != first.collective || offer.elements != first.elements ||
          offer.in.dtype != first.in.dtype || offer.root != first.root) {
        return absl::InternalError(
            absl::StrCat("ranks disagree: ", Name(first.collective), " of ", first.in.ToString(),
                         " against ", Name(offer.collective), " of ", offer.in.ToString()));
      }
    }
    return absl::OkStatus();
  }

  const std::chrono::nanoseconds timeout_;
  std::mutex mu_;  // guards all below
  std::condition_variable changed_;
  std::vector<Offer> offers_;
  int32_t arrived_ = 0;
  uint64_t generation_ = 0;  // meetings and partings so far
  absl::Status failure_;
};

namespace {

absl::Status CheckHostTensor(Collective collective, const TensorView& t) {
  if (t.device == DeviceType::kCpu && t.contiguous()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Name(collective), ": want a contiguous tensor on the cpu, got ", t.ToString()));
}

}  // namespace

class ThreadGroup::Rank final : public Communicator {
 public:
  Rank(Shared& shared, int32_t rank) : shared_(shared), rank_(rank) {}

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return shared_.size(); }

  absl::Status AllReduceSum(const TensorView& x, Stream) override {
    RETURN_IF_ERROR(CheckHostTensor(Collective::kAllReduceSum, x));
    if (x.dtype != DType::kF32 && x.dtype != DType::kBF16) {
      return absl::InvalidArgumentError(
          absl::StrCat("AllReduceSum: ", x.ToString(), ", want float32 or bfloat16"));
    }
    RETURN_IF_ERROR(shared_.Meet(rank_, {Collective::kAllReduceSum, x, x.size(), 0}));
    // Each rank sums its own part for everybody.
    const Range slice = BalancedRange(x.size(), size(), rank_);
    if (x.dtype == DType::kF32) {
      const auto same = [](float v) { return v; };
      SumSlice<float>(shared_.offers(), slice, same, same);
    } else {
      SumSlice<BFloat16>(shared_.offers(), slice, ToFloat, ToBFloat16);
    }
    shared_.Part();
    return absl::OkStatus();
  }

  absl::Status AllGather(const TensorView& in, const int64_t* counts, const TensorView& out,
                         Stream) override {
    RETURN_IF_ERROR(CheckHostTensor(Collective::kAllGather, in));
    RETURN_IF_ERROR(CheckHostTensor(Collective::kAllGather, out));
    int64_t total = 0;
    for (int32_t r = 0; r < size(); ++r) total += counts[r];
    if (in.size() != counts[rank_] || out.size() != total || in.dtype != out.dtype) {
      return absl::InvalidArgumentError(absl::StrCat("AllGather: in ", in.ToString(), ", out ",
                                                     out.ToString(), ", but counts[", rank_,
                                                     "] = ", counts[rank_], " of ", total));
    }
    RETURN_IF_ERROR(shared_.Meet(rank_, {Collective::kAllGather, in, total, 0}));
    char* to = out.as<char>();
    bool same_counts = true;
    for (int32_t r = 0; r < size(); ++r) {
      const TensorView& from = shared_.offers()[static_cast<size_t>(r)].in;
      const size_t bytes = static_cast<size_t>(counts[r] * DTypeBytes(in.dtype));
      same_counts = same_counts && from.size() == counts[r];
      if (same_counts && bytes > 0) std::memcpy(to, from.data, bytes);
      to += bytes;
    }
    shared_.Part();
    if (!same_counts) return absl::InternalError("AllGather: ranks disagree about the counts");
    return absl::OkStatus();
  }

  absl::Status AllToAll(const TensorView& in, const int64_t* send, const TensorView& out,
                        const int64_t* receive, Stream) override {
    RETURN_IF_ERROR(CheckHostTensor(Collective::kAllToAll, in));
    RETURN_IF_ERROR(CheckHostTensor(Collective::kAllToAll, out));
    const int64_t sent = std::accumulate(send, send + size(), int64_t{0});
    const int64_t received = std::accumulate(receive, receive + size(), int64_t{0});
    if (in.size() != sent || out.size() != received || in.dtype != out.dtype) {
      return absl::InvalidArgumentError(absl::StrCat("AllToAll: in ", in.ToString(), ", out ",
                                                     out.ToString(), ", but ", sent,
                                                     " to send and ", received, " to receive"));
    }
    RETURN_IF_ERROR(shared_.Meet(rank_, {Collective::kAllToAll, in, 0, 0, send}));
    char* to = out.as<char>();
    bool same_counts = true;
    for (int32_t r = 0; r < size(); ++r) {
      const Offer& from = shared_.offers()[static_cast<size_t>(r)];
      const int64_t begin = std::accumulate(from.send, from.send + rank_, int64_t{0});
      const int64_t width = DTypeBytes(in.dtype);
      same_counts = same_counts && from.send[rank_] == receive[r];
      if (same_counts && receive[r] > 0) {
        std::memcpy(to, from.in.as<char>() + begin * width,
                    static_cast<size_t>(receive[r] * width));
      }
      to += receive[r] * width;
    }
    shared_.Part();
    if (!same_counts) return absl::InternalError("AllToAll: ranks disagree about the counts");
    return absl::OkStatus();
  }

  absl::Status Broadcast(const TensorView& x, int32_t root, Stream) override {
    RETURN_IF_ERROR(CheckHostTensor(Collective::kBroadcast, x));
    if (root < 0 || root >= size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("Broadcast: root = ", root, " in a group of ", size()));
    }
    RETURN_IF_ERROR(shared_.Meet(rank_, {Collective::kBroadcast, x, x.size(), root}));
    const TensorView& from = shared_.offers()[static_cast<size_t>(root)].in;
    if (rank_ != root && x.size() > 0) {
      std::memcpy(x.data, from.data, static_cast<size_t>(x.size() * DTypeBytes(x.dtype)));
    }
    shared_.Part();
    return absl::OkStatus();
  }

  absl::Status Barrier(Stream) override {
    return shared_.Meet(rank_, {Collective::kBarrier, TensorView(), 0, 0});
  }

  void Abort() override { shared_.Abort(); }

 private:
  Shared& shared_;
  const int32_t rank_;
};

ThreadGroup::ThreadGroup(int32_t size, absl::Duration timeout) {
  MR_CHECK_GE(size, 1);
  shared_ = std::make_unique<Shared>(size, timeout);
  for (int32_t r = 0; r < size; ++r) {
    ranks_.push_back(std::make_unique<Rank>(*shared_, r));
  }
}

ThreadGroup::~ThreadGroup() = default;

}  // namespace millrace
