#include "distributed/comm/connect_nccl.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/comm/nccl_communicator.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"

namespace millrace {
namespace {

constexpr char kIdKey[] = "nccl/id";

std::string ReadyKey(int32_t rank) { return absl::StrCat("nccl/ready/", rank); }

// The name under which NCCL's own sockets meet; made by rank 0, passed on by the store.
absl::StatusOr<ncclUniqueId> ShareId(const NcclLibrary& nccl, int32_t rank, KeyValueStore& store,
                                     absl::Duration timeout) {
  ncclUniqueId id = {};
  if (rank == 0) {
    const ncclResult_t made = nccl.get_unique_id(&id);
    // An empty value tells the others not to wait.
    RETURN_IF_ERROR(store.Set(
        kIdKey, made == ncclSuccess ? std::string(id.internal, sizeof(id.internal)) : ""));
    RETURN_IF_ERROR(nccl.StatusOf(made, "ncclGetUniqueId", nullptr));
    return id;
  }
  ASSIGN_OR_RETURN(const std::string text, store.Get(kIdKey, timeout));
  if (text.size() != sizeof(id.internal)) {
    return absl::UnavailableError(
        "ConnectNccl: rank 0 could not start NCCL; its own error says why");
  }
  std::memcpy(id.internal, text.data(), text.size());
  return id;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> ConnectNccl(const ConnectOptions& options,
                                                          KeyValueStore& store, Device& device) {
  if (device.type() != DeviceType::kCuda) {
    return absl::InvalidArgumentError("ConnectNccl: the device is not a CUDA device");
  }
  ASSIGN_OR_RETURN(const NcclLibrary nccl, NcclLibrary::Load());
  const absl::Time deadline = absl::Now() + options.connect_timeout;
  const auto left = [&] { return std::max(deadline - absl::Now(), absl::ZeroDuration()); };
  RETURN_IF_ERROR(device.Properties().status());  // makes the device current for this thread
  int ordinal = 0;
  RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&ordinal), "cudaGetDevice"));
  ASSIGN_OR_RETURN(const ncclUniqueId id, ShareId(nccl, options.rank, store, left()));
  // Met in the store first, a missing rank is named, and the end of the group ends the wait.
  RETURN_IF_ERROR(store.Set(ReadyKey(options.rank), ""));
  for (int32_t r = 0; r < options.size; ++r) {
    RETURN_IF_ERROR(store.Get(ReadyKey(r), left()).status());
  }
  // Calls that never block can be given up, and can be aborted from another thread.
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t started = nccl.init_rank(&comm, options.size, id, options.rank, &config);
  if (comm == nullptr || (started != ncclSuccess && started != ncclInProgress)) {
    if (comm != nullptr) (void)nccl.comm_abort(comm);
    RETURN_IF_ERROR(nccl.StatusOf(started, "ncclCommInitRankConfig", nullptr));
    return absl::InternalError("ncclCommInitRankConfig: gave no communicator");
  }
  auto communicator =
      std::make_unique<NcclCommunicator>(nccl, comm, options.rank, options.size, ordinal);
  RETURN_IF_ERROR(communicator->Ready(deadline, options.timeout, device));
  return communicator;
}

std::string NcclVersion() {
  const absl::StatusOr<NcclLibrary> nccl = NcclLibrary::Load();
  int version = 0;
  if (!nccl.ok() || nccl->get_version(&version) != ncclSuccess) return "";
  return absl::StrCat("NCCL ", version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace millrace
