// Sums over two GPUs and more, each followed by the residual addition and RMSNorm, in graphs: in
// one kernel over peer memory, and by NCCL and a second kernel.
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "distributed/comm/connect_nccl.h"
#include "distributed/comm/local_store.h"
#include "distributed/comm/peer_communicator.h"
#include "distributed/comm/peer_memory.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_device.h"

namespace millrace {
namespace {

constexpr int64_t kLargestBytes = int64_t{1} << 20;

absl::Status Meet(int32_t rank, int32_t size, KeyValueStore& store) {
  RETURN_IF_ERROR(store.Set("end/" + std::to_string(rank), ""));
  for (int32_t r = 0; r < size; ++r) {
    RETURN_IF_ERROR(store.Get("end/" + std::to_string(r), absl::Seconds(60)).status());
  }
  return absl::OkStatus();
}

absl::Status RunRank(int32_t rank, int32_t size, KeyValueStore& store,
                     std::vector<AllReduceTime>& times) {
  const ConnectOptions options = {.rank = rank, .size = size};
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, CreateCudaDevice(rank));
  ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> comm, ConnectNccl(options, store, *device));
  ASSIGN_OR_RETURN(const std::unique_ptr<PeerMemory> memory,
                   ConnectPeerMemory(options, kLargestBytes, store, *device));
  ASSIGN_OR_RETURN(times, TimeAllReduce(*comm, memory->peers(), *device));
  return Meet(rank, size, store);
}

int Run() {
  const int32_t size = CudaDeviceCount();
  if (size < 2 || NcclVersion().empty()) {
    std::printf("all_reduce_bench: needs two GPUs and NCCL\n");
    return 0;
  }
  LocalStore store;
  std::vector<absl::Status> results(static_cast<size_t>(size));
  std::vector<std::vector<AllReduceTime>> times(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      results[static_cast<size_t>(r)] = RunRank(r, size, store, times[static_cast<size_t>(r)]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) {
    if (result.ok()) continue;
    std::fprintf(stderr, "all_reduce_bench: %s\n", std::string(result.message()).c_str());
    return 1;
  }
  std::printf("%d GPUs, rows of 4096 bf16, %s; all-reduce + residual + RMSNorm, us\n", size,
              NcclVersion().c_str());
  std::printf("%8s %10s %10s %7s\n", "KiB", "NCCL", "fused", "ratio");
  for (const AllReduceTime& time : times[0]) {
    std::printf("%8lld %10.2f %10.2f %7.2f\n", static_cast<long long>(time.bytes >> 10),
                time.separate_us, time.fused_us, time.separate_us / time.fused_us);
  }
  std::printf("sums go over peer memory up to %lld KiB\n",
              static_cast<long long>(FusedLimit(times[0]) >> 10));
  return 0;
}

}  // namespace
}  // namespace millrace

int main() { return millrace::Run(); }
