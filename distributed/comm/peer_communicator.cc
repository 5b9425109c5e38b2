#include "distributed/comm/peer_communicator.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/comm/peer_memory.h"
#include "kernels/core/dtype.h"
#include "kernels/core/op_context.h"
#include "kernels/core/status.h"
#include "kernels/rms_norm/rms_norm.h"

namespace millrace {
namespace {

constexpr int64_t kLargestBytes = int64_t{1} << 20;
constexpr int64_t kHidden = 4096;
constexpr int64_t kRowBytes = kHidden * 2;

// Adds peers() to another communicator.
class PeerCommunicator final : public Communicator {
 public:
  PeerCommunicator(std::unique_ptr<Communicator> inner, std::unique_ptr<PeerMemory> memory,
                   int64_t limit)
      : inner_(std::move(inner)), memory_(std::move(memory)), peers_(memory_->peers()) {
    peers_.max_bytes = limit;
  }

  int32_t rank() const override { return inner_->rank(); }
  int32_t size() const override { return inner_->size(); }
  absl::Status AllReduceSum(const TensorView& x, Stream stream) override {
    return inner_->AllReduceSum(x, stream);
  }
  absl::Status AllGather(const TensorView& in, const int64_t* counts, const TensorView& out,
                         Stream stream) override {
    return inner_->AllGather(in, counts, out, stream);
  }
  absl::Status AllToAll(const TensorView& in, const int64_t* send, const TensorView& out,
                        const int64_t* receive, Stream stream) override {
    return inner_->AllToAll(in, send, out, receive, stream);
  }
  absl::Status Broadcast(const TensorView& x, int32_t root, Stream stream) override {
    return inner_->Broadcast(x, root, stream);
  }
  absl::Status Barrier(Stream stream) override { return inner_->Barrier(stream); }
  const AllReducePeers* peers() const override { return &peers_; }
  void Abort() override {
    // What else fails then is the group's own error.
    (void)memory_->Stop();
    inner_->Abort();
  }

 private:
  const std::unique_ptr<Communicator> inner_;
  const std::unique_ptr<PeerMemory> memory_;
  AllReducePeers peers_;
};

// Both ways of one message, each captured several times in a graph.
class Timing final {
 public:
  Timing(Communicator& comm, const AllReducePeers& peers, Device& device)
      : comm_(comm), peers_(peers), device_(device) {}
  ~Timing() { device_.DestroyStream(stream_); }

  absl::Status Prepare() {
    ASSIGN_OR_RETURN(stream_, device_.CreateStream());
    for (Buffer* buffer : {&x_, &residual_, &y_}) {
      ASSIGN_OR_RETURN(*buffer, device_.Allocate(peers_.max_bytes));
    }
    ASSIGN_OR_RETURN(weight_, device_.Allocate(kRowBytes));
    return absl::OkStatus();
  }

  absl::StatusOr<AllReduceTime> Time(int64_t bytes) {
    AllReduceTime time = {.bytes = bytes};
    ASSIGN_OR_RETURN(time.fused_us, TimeOf([&] { return Fused(bytes / kRowBytes); }));
    ASSIGN_OR_RETURN(time.separate_us, TimeOf([&] { return Separate(bytes / kRowBytes); }));
    return time;
  }

 private:
  static constexpr int kCalls = 32;   // of a graph
  static constexpr int kRounds = 12;  // graphs, the first of which warms up

  TensorView Rows(const Buffer& buffer, int64_t tokens) const {
    return TensorView::Of(buffer.data(), DType::kBF16, {tokens, kHidden}, device_.type());
  }
  TensorView Weight() const {
    return TensorView::Of(weight_.data(), DType::kBF16, {kHidden}, device_.type());
  }

  absl::Status Fused(int64_t tokens) {
    return AllReduceRmsNorm({device_, stream_, workspace_}, {.peers = peers_,
                                                             .x = Rows(x_, tokens),
                                                             .residual = Rows(residual_, tokens),
                                                             .weight = Weight(),
                                                             .y = Rows(y_, tokens),
                                                             .eps = 1e-5f});
  }
  absl::Status Separate(int64_t tokens) {
    RETURN_IF_ERROR(comm_.AllReduceSum(Rows(x_, tokens), stream_));
    return RmsNorm({device_, stream_, workspace_}, {.x = Rows(x_, tokens),
                                                    .residual = Rows(residual_, tokens),
                                                    .weight = Weight(),
                                                    .y = Rows(y_, tokens),
                                                    .eps = 1e-5f});
  }

  // Microseconds of one call: the median graph.
  template <typename Call>
  absl::StatusOr<double> TimeOf(const Call& call) {
    RETURN_IF_ERROR(call());  // outside a capture first: libraries set themselves up
    RETURN_IF_ERROR(device_.Synchronize(stream_));
    RETURN_IF_ERROR(device_.BeginCapture(stream_));
    for (int i = 0; i < kCalls; ++i) RETURN_IF_ERROR(call());
    ASSIGN_OR_RETURN(const Graph graph, device_.EndCapture(stream_));
    std::vector<double> seconds;
    for (int round = 0; round < kRounds; ++round) {
      RETURN_IF_ERROR(comm_.Barrier(stream_));
      RETURN_IF_ERROR(device_.Synchronize(stream_));
      const auto start = std::chrono::steady_clock::now();
      RETURN_IF_ERROR(device_.Launch(graph, stream_));
      RETURN_IF_ERROR(device_.Synchronize(stream_));
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      if (round > 0) seconds.push_back(took.count());
    }
    std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
    return seconds[seconds.size() / 2] / kCalls * 1e6;
  }

  Communicator& comm_;
  const AllReducePeers& peers_;
  Device& device_;
  Stream stream_;
  Workspace workspace_;
  Buffer x_, residual_, y_, weight_;
};

// Every rank's mean of each number.
absl::Status Average(Communicator& comm, Device& device, std::vector<float>& values) {
  const int64_t count = static_cast<int64_t>(values.size());
  const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
  ASSIGN_OR_RETURN(const Buffer memory, device.Allocate(bytes));
  ASSIGN_OR_RETURN(const Stream stream, device.CreateStream());
  const auto sum = [&]() -> absl::Status {
    RETURN_IF_ERROR(
        device.Copy(memory.data(), values.data(), bytes, CopyKind::kHostToDevice, stream));
    RETURN_IF_ERROR(comm.AllReduceSum(
        TensorView::Of(memory.data(), DType::kF32, {count}, device.type()), stream));
    RETURN_IF_ERROR(
        device.Copy(values.data(), memory.data(), bytes, CopyKind::kDeviceToHost, stream));
    return device.Synchronize(stream);
  };
  const absl::Status status = sum();
  device.DestroyStream(stream);
  for (float& value : values) value /= static_cast<float>(comm.size());
  return status;
}

}  // namespace

absl::StatusOr<std::vector<AllReduceTime>> TimeAllReduce(Communicator& comm,
                                                         const AllReducePeers& peers,
                                                         Device& device) {
  Timing timing(comm, peers, device);
  RETURN_IF_ERROR(timing.Prepare());
  std::vector<AllReduceTime> times;
  std::vector<float> values;
  for (int64_t bytes = kRowBytes; bytes <= peers.max_bytes; bytes *= 2) {
    ASSIGN_OR_RETURN(times.emplace_back(), timing.Time(bytes));
    values.push_back(static_cast<float>(times.back().fused_us));
    values.push_back(static_cast<float>(times.back().separate_us));
  }
  if (times.empty()) return times;
  RETURN_IF_ERROR(Average(comm, device, values));
  for (size_t i = 0; i < times.size(); ++i) {
    times[i].fused_us = values[2 * i];
    times[i].separate_us = values[2 * i + 1];
  }
  return times;
}

int64_t FusedLimit(const std::vector<AllReduceTime>& times) {
  int64_t limit = 0;
  for (const AllReduceTime& time : times) {
    if (time.fused_us >= time.separate_us) break;
    limit = time.bytes;
  }
  return limit;
}

absl::StatusOr<JoinedGroup> AddPeerMemory(const ConnectOptions& options, JoinedGroup group,
                                          KeyValueStore& store, Device& device) {
  absl::StatusOr<std::unique_ptr<PeerMemory>> memory =
      ConnectPeerMemory(options, kLargestBytes, store, device);
  if (absl::IsFailedPrecondition(memory.status())) {
    absl::StrAppend(&group.transport, ", no peer memory: ", memory.status().message());
    return group;
  }
  RETURN_IF_ERROR(memory.status());
  ASSIGN_OR_RETURN(const std::vector<AllReduceTime> times,
                   TimeAllReduce(*group.communicator, (*memory)->peers(), device));
  const int64_t limit = FusedLimit(times);
  if (limit == 0) {
    absl::StrAppend(&group.transport, ", peer memory is no faster");
    return group;
  }
  absl::StrAppend(&group.transport, ", peer memory to ", limit >> 10, " KiB");
  group.communicator =
      std::make_unique<PeerCommunicator>(std::move(group.communicator), *std::move(memory), limit);
  return group;
}

}  // namespace millrace
