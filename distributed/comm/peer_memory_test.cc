// The one-shot all-reduce over the memory of two GPUs and more, in this process and in several.
#include "distributed/comm/peer_memory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "distributed/comm/directory_store.h"
#include "distributed/comm/local_store.h"
#include "kernels/core/dtype.h"
#include "kernels/core/status.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cuda/cuda_device.h"

namespace millrace {
namespace {

constexpr int64_t kMaxTokens = 16;
constexpr int64_t kSize = 4096;

// Numbers that are exact in bf16, and their sums too.
float Number(int32_t rank, int64_t round, int64_t i) {
  return static_cast<float>((i * 7 + round * 3 + rank) % 16);
}

class RankRun final {
 public:
  RankRun(Device& device, Stream stream, const PeerMemory& memory)
      : device_(device), stream_(stream), memory_(memory) {}

  absl::Status Prepare() {
    for (Buffer* buffer : {&x_, &residual_, &weight_, &y_}) {
      ASSIGN_OR_RETURN(*buffer, device_.Allocate(kMaxTokens * kSize * 2));
    }
    return absl::OkStatus();
  }

  // Internal when the sum is wrong.
  absl::Status Round(int64_t round) {
    const int64_t tokens = 1 + round % kMaxTokens;
    const int64_t bytes = tokens * kSize * 2;
    std::vector<BFloat16> host;
    for (int64_t i = 0; i < tokens * kSize; ++i) {
      host.push_back(ToBFloat16(Number(memory_.peers().rank, round, i)));
    }
    const std::vector<BFloat16> zeros(host.size());
    RETURN_IF_ERROR(device_.Copy(x_.data(), host.data(), bytes, CopyKind::kHostToDevice, stream_));
    RETURN_IF_ERROR(
        device_.Copy(residual_.data(), zeros.data(), bytes, CopyKind::kHostToDevice, stream_));
    const auto view = [&](const Buffer& buffer) {
      return TensorView::Of(buffer.data(), DType::kBF16, {tokens, kSize}, DeviceType::kCuda);
    };
    Workspace workspace;
    RETURN_IF_ERROR(AllReduceRmsNorm(
        {device_, stream_, workspace},
        {.peers = memory_.peers(),
         .x = view(x_),
         .residual = view(residual_),
         .weight = TensorView::Of(weight_.data(), DType::kBF16, {kSize}, DeviceType::kCuda),
         .y = view(y_),
         .eps = 1e-5f}));
    RETURN_IF_ERROR(
        device_.Copy(host.data(), residual_.data(), bytes, CopyKind::kDeviceToHost, stream_));
    RETURN_IF_ERROR(device_.Synchronize(stream_));
    for (int64_t i = 0; i < tokens * kSize; ++i) {
      float want = 0;
      for (int32_t r = 0; r < memory_.peers().size; ++r) want += Number(r, round, i);
      if (ToFloat(host[static_cast<size_t>(i)]) != want) {
        return absl::InternalError("a wrong sum in round " + std::to_string(round));
      }
    }
    return absl::OkStatus();
  }

 private:
  Device& device_;
  const Stream stream_;
  const PeerMemory& memory_;
  Buffer x_, residual_, weight_, y_;
};

absl::Status RunRank(int32_t rank, int32_t size, KeyValueStore& store) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, CreateCudaDevice(rank));
  ASSIGN_OR_RETURN(const Stream stream, device->CreateStream());
  ASSIGN_OR_RETURN(
      const std::unique_ptr<PeerMemory> memory,
      ConnectPeerMemory({.rank = rank, .size = size}, kMaxTokens * kSize * 2, store, *device));
  RankRun run(*device, stream, *memory);
  absl::Status status = run.Prepare();
  for (int64_t round = 0; round < 500 && status.ok(); ++round) status = run.Round(round);
  RETURN_IF_ERROR(store.Set("end/" + std::to_string(rank), ""));
  for (int32_t r = 0; r < size; ++r) {
    RETURN_IF_ERROR(store.Get("end/" + std::to_string(r), absl::Seconds(60)).status());
  }
  device->DestroyStream(stream);
  return status;
}

// Groups that this machine has the GPUs for.
std::vector<int32_t> GroupSizes(int gpus) {
  std::vector<int32_t> sizes;
  for (const int32_t size : {1, 2, 3, 4, 8}) {
    if (size <= gpus) sizes.push_back(size);
  }
  return sizes;
}

TEST(PeerMemoryOnAGpu, ThreadsOfOneProcess) {
  const int gpus = CudaDeviceCount();
  if (gpus == 0) GTEST_SKIP() << "needs a GPU, and two for a sum";
  if (gpus == 1) std::cerr << "only a group of one rank: this machine has one GPU\n";
  for (const int32_t size : GroupSizes(gpus)) {
    LocalStore store;
    std::vector<absl::Status> results(static_cast<size_t>(size));
    std::vector<std::thread> threads;
    for (int32_t r = 0; r < size; ++r) {
      threads.emplace_back([&, r] { results[static_cast<size_t>(r)] = RunRank(r, size, store); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& result : results) EXPECT_TRUE(result.ok()) << result;
  }
}

TEST(PeerMemoryTest, RefusesTheCpu) {
  const std::unique_ptr<CpuDevice> cpu = CpuDevice::Create(1).value();
  LocalStore store;
  const absl::Status status = ConnectPeerMemory({.size = 1}, 1024, store, *cpu).status();
  EXPECT_TRUE(status.code() == absl::StatusCode::kInvalidArgument ||
              status.code() == absl::StatusCode::kUnimplemented)
      << status;
}

// A rank that is a process: `peer_memory_test --rank=R SIZE FOLDER`.
int RankMain(int32_t rank, int32_t size, const std::string& folder) {
  DirectoryStore store(folder);
  const absl::Status status = RunRank(rank, size, store);
  if (!status.ok()) std::cerr << "rank " << rank << ": " << status << "\n";
  return status.ok() ? 0 : 1;
}

// By IPC handles. CUDA does not outlive a fork, so each rank executes this program anew.
TEST(PeerMemoryOnAGpu, Processes) {
  const int gpus = CudaDeviceCount();
  if (gpus == 0) GTEST_SKIP() << "needs a GPU, and two for a sum";
  for (const int32_t size : GroupSizes(gpus)) {
    std::string folder = testing::TempDir() + "/peersXXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    std::vector<pid_t> children;
    for (int32_t rank = 0; rank < size; ++rank) {
      const std::string rank_flag = "--rank=" + std::to_string(rank);
      const std::string size_text = std::to_string(size);
      const pid_t child = fork();
      if (child == 0) {
        execl("/proc/self/exe", "peer_memory_test", rank_flag.c_str(), size_text.c_str(),
              folder.c_str(), static_cast<char*>(nullptr));
        _exit(127);
      }
      children.push_back(child);
    }
    for (const pid_t child : children) {
      int status = -1;
      waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
    }
  }
}

}  // namespace

// gtest's own, and that of a rank.
int PeerMemoryTestMain(int argc, char** argv) {
  const std::string flag = argc == 4 ? argv[1] : "";
  if (flag.rfind("--rank=", 0) == 0) {
    return RankMain(std::atoi(flag.c_str() + 7), std::atoi(argv[2]), argv[3]);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace millrace

int main(int argc, char** argv) { return millrace::PeerMemoryTestMain(argc, argv); }
