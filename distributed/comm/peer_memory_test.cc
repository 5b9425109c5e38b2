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

// 10^5 sums by graphs of a hundred, each sum of other numbers and another size than the one before:
// a packet taken from an earlier call, or half of one, would show.
class ManyRounds final {
 public:
  ManyRounds(Device& device, Stream stream, const PeerMemory& memory)
      : device_(device), stream_(stream), memory_(memory) {}

  absl::Status Run() {
    for (Buffer* buffer : {&x_, &residual_, &y_}) {
      ASSIGN_OR_RETURN(*buffer, device_.Allocate(kRows * kWidth * 2));
    }
    ASSIGN_OR_RETURN(weight_, device_.Allocate(kWidth * 2));
    ASSIGN_OR_RETURN(zeros_, device_.Allocate(kRows * kWidth * 2));
    ASSIGN_OR_RETURN(const Graph graph, Capture());
    for (int64_t launch = 0; launch < kLaunches; ++launch) {
      RETURN_IF_ERROR(Launch(graph, launch));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kWidth = 512;
  static constexpr int64_t kCalls = 100;
  static constexpr int64_t kLaunches = 1000;
  static constexpr int64_t kRows = 8 * kCalls;  // a call has 8, of which it sums some
  static int64_t Tokens(int64_t call) { return 1 + call * 5 % 8; }

  TensorView View(const Buffer& buffer, int64_t begin, int64_t rows) const {
    return TensorView::Of(buffer.data(), DType::kBF16, {kRows, kWidth}, DeviceType::kCuda)
        .Rows(begin, begin + rows);
  }

  absl::StatusOr<Graph> Capture() {
    RETURN_IF_ERROR(device_.BeginCapture(stream_));
    RETURN_IF_ERROR(device_.Copy(residual_.data(), zeros_.data(), residual_.bytes(),
                                 CopyKind::kDeviceToDevice, stream_));
    int64_t row = 0;
    for (int64_t call = 0; call < kCalls; ++call) {
      const int64_t rows = Tokens(call);
      RETURN_IF_ERROR(AllReduceRmsNorm(
          {device_, stream_, workspace_},
          {.peers = memory_.peers(),
           .x = View(x_, row, rows),
           .residual = View(residual_, row, rows),
           .weight = TensorView::Of(weight_.data(), DType::kBF16, {kWidth}, DeviceType::kCuda),
           .y = View(y_, row, rows),
           .eps = 1e-5f}));
      row += 8;
    }
    return device_.EndCapture(stream_);
  }

  absl::Status Launch(const Graph& graph, int64_t launch) {
    const int64_t bytes = kRows * kWidth * 2;
    std::vector<BFloat16> host(kRows * kWidth);
    for (size_t i = 0; i < host.size(); ++i) {
      host[i] = ToBFloat16(Number(memory_.peers().rank, launch, static_cast<int64_t>(i)));
    }
    RETURN_IF_ERROR(device_.Copy(x_.data(), host.data(), bytes, CopyKind::kHostToDevice, stream_));
    RETURN_IF_ERROR(device_.Launch(graph, stream_));
    RETURN_IF_ERROR(
        device_.Copy(host.data(), residual_.data(), bytes, CopyKind::kDeviceToHost, stream_));
    RETURN_IF_ERROR(device_.Synchronize(stream_));
    for (size_t i = 0; i < host.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / kWidth;
      float want = 0;  // where the call has no row
      for (int32_t r = 0; r < memory_.peers().size && row % 8 < Tokens(row / 8); ++r) {
        want += Number(r, launch, static_cast<int64_t>(i));
      }
      if (ToFloat(host[i]) != want) {
        return absl::InternalError("a wrong sum in launch " + std::to_string(launch));
      }
    }
    return absl::OkStatus();
  }

  Device& device_;
  const Stream stream_;
  const PeerMemory& memory_;
  Workspace workspace_;
  Buffer x_, residual_, y_, weight_, zeros_;
};

absl::Status RunRank(int32_t rank, int32_t size, KeyValueStore& store, bool many) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, CreateCudaDevice(rank));
  ASSIGN_OR_RETURN(const Stream stream, device->CreateStream());
  ASSIGN_OR_RETURN(
      const std::unique_ptr<PeerMemory> memory,
      ConnectPeerMemory({.rank = rank, .size = size}, kMaxTokens * kSize * 2, store, *device));
  RankRun run(*device, stream, *memory);
  absl::Status status = run.Prepare();
  for (int64_t round = 0; round < 500 && status.ok(); ++round) status = run.Round(round);
  if (many && status.ok()) status = ManyRounds(*device, stream, *memory).Run();
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
      threads.emplace_back(
          [&, r] { results[static_cast<size_t>(r)] = RunRank(r, size, store, /*many=*/true); });
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
  const absl::Status status = RunRank(rank, size, store, /*many=*/false);
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
