#include "distributed/comm/peer_memory.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"

namespace millrace {
namespace {

// What a rank tells the others of its inbox.
struct Offer {
  char host[40];     // the kernel's boot id
  uint64_t process;  // random
  uint64_t address;  // in that process
  int32_t ordinal;   // of the GPU there
  cudaIpcMemHandle_t handle;
};
static_assert(std::is_trivially_copyable_v<Offer>);

// The same number in all calls of this process, another one in every other process.
uint64_t ProcessToken() {
  static const uint64_t token = (uint64_t{std::random_device()()} << 32 | std::random_device()()) ^
                                static_cast<uint64_t>(getpid());
  return token;
}

std::string BootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

class CudaPeerMemory final : public PeerMemory {
 public:
  explicit CudaPeerMemory(Device& device) : device_(device) {}
  ~CudaPeerMemory() override {
    (void)cudaSetDevice(ordinal_);
    for (void* memory : opened_) (void)cudaIpcCloseMemHandle(memory);
    if (stop_stream_.handle != nullptr) device_.DestroyStream(stop_stream_);
  }

  const AllReducePeers& peers() const override { return peers_; }

  absl::Status Stop() override {
    // On a stream of its own, by the copy engine: the kernels that wait hold the multiprocessors.
    return device_.Copy(static_cast<char*>(peers_.state) + kAllReduceStopOffset, one_.data(),
                        sizeof(int32_t), CopyKind::kHostToDevice, stop_stream_);
  }

  // This rank's own part.
  absl::StatusOr<Offer> Make(const ConnectOptions& options, int64_t max_bytes) {
    peers_.rank = options.rank;
    peers_.size = options.size;
    peers_.max_bytes = max_bytes;
    // Zero before the others hear of it, and so before their first packet.
    ASSIGN_OR_RETURN(inbox_, device_.Allocate(AllReduceInboxBytes(options.size, max_bytes)));
    ASSIGN_OR_RETURN(state_, device_.Allocate(kAllReduceStateBytes));
    ASSIGN_OR_RETURN(one_, device_.AllocateHost(sizeof(int32_t)));
    ASSIGN_OR_RETURN(stop_stream_, device_.CreateStream());
    const int32_t one = 1;
    std::memcpy(one_.data(), &one, sizeof(one));
    peers_.inboxes[static_cast<size_t>(options.rank)] = inbox_.data();
    peers_.state = state_.data();
    RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&ordinal_), "cudaGetDevice"));
    Offer offer = {};
    RETURN_IF_ERROR(
        CudaStatus(cudaIpcGetMemHandle(&offer.handle, inbox_.data()), "cudaIpcGetMemHandle"));
    const std::string host = BootId();
    std::memcpy(offer.host, host.data(), std::min(host.size(), sizeof(offer.host)));
    offer.process = ProcessToken();
    offer.address = reinterpret_cast<uint64_t>(inbox_.data());
    offer.ordinal = ordinal_;
    return offer;
  }

  // Maps another rank's inbox.
  absl::Status Open(int32_t rank, const Offer& theirs, const Offer& mine) {
    void*& inbox = peers_.inboxes[static_cast<size_t>(rank)];
    if (std::memcmp(theirs.host, mine.host, sizeof(mine.host)) != 0) {
      return absl::FailedPreconditionError("it is on another host");
    }
    if (theirs.process != mine.process) {
      RETURN_IF_ERROR(
          Forgiven(cudaIpcOpenMemHandle(&inbox, theirs.handle, cudaIpcMemLazyEnablePeerAccess),
                   "cudaIpcOpenMemHandle"));
      opened_.push_back(inbox);
      return absl::OkStatus();
    }
    if (theirs.ordinal != ordinal_) {
      const cudaError_t enabled = cudaDeviceEnablePeerAccess(theirs.ordinal, 0);
      if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError();
      } else {
        RETURN_IF_ERROR(Forgiven(enabled, "cudaDeviceEnablePeerAccess"));
      }
    }
    inbox = reinterpret_cast<void*>(theirs.address);
    return absl::OkStatus();
  }

 private:
  // The error as status, forgotten by CUDA: the group goes on without peer memory.
  static absl::Status Forgiven(cudaError_t error, const char* what) {
    if (error != cudaSuccess) (void)cudaGetLastError();
    return CudaStatus(error, what);
  }

  Device& device_;
  int ordinal_ = 0;
  AllReducePeers peers_;
  Buffer inbox_;
  Buffer state_;
  Buffer one_;  // on the host, the i32 1
  Stream stop_stream_;
  std::vector<void*> opened_;
};

// Every rank's `value`, by rank.
absl::StatusOr<std::vector<std::string>> Exchange(const ConnectOptions& options,
                                                  const std::string& name, const std::string& value,
                                                  absl::Time deadline, KeyValueStore& store) {
  RETURN_IF_ERROR(store.Set(absl::StrCat("peer/", name, "/", options.rank), value));
  std::vector<std::string> values;
  for (int32_t r = 0; r < options.size; ++r) {
    const absl::Duration left = std::max(deadline - absl::Now(), absl::ZeroDuration());
    ASSIGN_OR_RETURN(std::string theirs, store.Get(absl::StrCat("peer/", name, "/", r), left));
    values.push_back(std::move(theirs));
  }
  return values;
}

// OK when all of `offers` can be used.
absl::Status OpenAll(CudaPeerMemory& memory, const Offer& mine,
                     const std::vector<std::string>& offers) {
  for (int32_t r = 0; r < memory.peers().size; ++r) {
    const std::string& text = offers[static_cast<size_t>(r)];
    Offer theirs = {};
    absl::Status opened = absl::FailedPreconditionError("it has none");
    if (text.size() == sizeof(theirs)) {
      std::memcpy(&theirs, text.data(), sizeof(theirs));
      opened = r == memory.peers().rank ? absl::OkStatus() : memory.Open(r, theirs, mine);
    }
    if (!opened.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the memory of rank ", r, ": ", opened.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerMemory>> ConnectPeerMemory(const ConnectOptions& options,
                                                              int64_t max_bytes,
                                                              KeyValueStore& store,
                                                              Device& device) {
  if (device.type() != DeviceType::kCuda || options.size > kAllReduceMaxRanks || max_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("ConnectPeerMemory: want a CUDA device, at most ", kAllReduceMaxRanks,
                     " ranks, not ", options.size, ", and a size of at least 1, not ", max_bytes));
  }
  const absl::Time deadline = absl::Now() + options.connect_timeout;
  auto memory = std::make_unique<CudaPeerMemory>(device);
  const absl::StatusOr<Offer> mine = memory->Make(options, max_bytes);
  // A rank that has no offer says so, and all go without.
  std::string text;
  if (mine.ok()) text.assign(reinterpret_cast<const char*>(&*mine), sizeof(*mine));
  ASSIGN_OR_RETURN(const std::vector<std::string> offers,
                   Exchange(options, "offer", text, deadline, store));
  const absl::Status opened = mine.ok() ? OpenAll(*memory, *mine, offers) : mine.status();
  ASSIGN_OR_RETURN(const std::vector<std::string> answers,
                   Exchange(options, "opened", std::string(opened.message()), deadline, store));
  for (size_t r = 0; r < answers.size(); ++r) {
    if (answers[r].empty()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("ConnectPeerMemory: rank ", r, ": ", answers[r]));
  }
  return memory;
}

}  // namespace millrace
