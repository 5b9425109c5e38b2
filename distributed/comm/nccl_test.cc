// The conformance suite over NCCL, on ranks that are threads with a GPU each, and what is different
// there: graphs, and an abort of a collective that already runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "distributed/comm/conformance.h"
#include "distributed/comm/connect_nccl.h"
#include "distributed/comm/local_store.h"
#include "distributed/comm/self_test.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_device.h"

namespace millrace {
namespace {

struct RankBed {
  Communicator& comm;
  Device& device;
  Stream stream;
  KeyValueStore& store;
};

absl::Status Meet(const RankBed& bed, const std::string& name) {
  RETURN_IF_ERROR(bed.store.Set(name + "/" + std::to_string(bed.comm.rank()), ""));
  for (int32_t r = 0; r < bed.comm.size(); ++r) {
    RETURN_IF_ERROR(bed.store.Get(name + "/" + std::to_string(r), absl::Seconds(60)).status());
  }
  return absl::OkStatus();
}

absl::Status RunRank(int32_t rank, int32_t size, KeyValueStore& store,
                     const std::function<absl::Status(const RankBed&)>& body) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, CreateCudaDevice(rank));
  ASSIGN_OR_RETURN(const Stream stream, device->CreateStream());
  ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> comm,
                   ConnectNccl({.rank = rank, .size = size}, store, *device));
  const RankBed bed = {*comm, *device, stream, store};
  absl::Status status = body(bed);
  if (!status.ok()) comm->Abort();
  // Nobody frees what another rank's kernel may still read.
  status.Update(device->Synchronize(stream));
  status.Update(Meet(bed, "end"));
  device->DestroyStream(stream);
  return status;
}

// Runs `body` as `size` ranks on GPUs 0, 1, ...
void OnRanks(int32_t size, const std::function<absl::Status(const RankBed&)>& body) {
  LocalStore store;
  std::vector<absl::Status> results(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < size; ++r) {
    threads.emplace_back(
        [&, r] { results[static_cast<size_t>(r)] = RunRank(r, size, store, body); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

// Groups that this machine has the GPUs for; without any, one that is skipped.
std::vector<int32_t> GroupSizes() {
  std::vector<int32_t> sizes;
  for (const int32_t size : {1, 2, 3, 4, 8}) {
    if (size <= CudaDeviceCount()) sizes.push_back(size);
  }
  if (sizes.empty()) sizes.push_back(2);
  return sizes;
}

// The tests of more than one rank do nothing on one GPU, and say so.
class NcclOnAGpu : public testing::TestWithParam<int32_t> {
 protected:
  void SetUp() override {
    if (NcclVersion().empty()) GTEST_SKIP() << "this build has no NCCL";
    const int gpus = CudaDeviceCount();
    if (gpus < GetParam()) {
      GTEST_SKIP() << "needs " << GetParam() << " GPUs, this machine has " << gpus;
    }
    if (gpus == 1) std::cerr << "only a group of one rank: this machine has one GPU\n";
  }
};

TEST_P(NcclOnAGpu, Collectives) {
  OnRanks(GetParam(), [](const RankBed& bed) {
    // Two ranks add in the one order there is.
    return CheckCollectives(
        bed.comm,
        {.device = &bed.device, .stream = bed.stream, .sums_in_rank_order = bed.comm.size() <= 2});
  });
}

TEST_P(NcclOnAGpu, SelfTest) {
  OnRanks(GetParam(), [](const RankBed& bed) { return CollectiveSelfTest(bed.comm, bed.device); });
}

// Sums and gathers captured once work on what lies in memory at each launch.
TEST_P(NcclOnAGpu, Graphs) {
  OnRanks(GetParam(), [](const RankBed& bed) -> absl::Status {
    constexpr int64_t kCount = 4096;
    const int32_t size = bed.comm.size();
    std::vector<float> x(kCount), all(static_cast<size_t>(kCount * size));
    const int64_t bytes = kCount * 4;
    ASSIGN_OR_RETURN(const Buffer one, bed.device.Allocate(bytes));
    ASSIGN_OR_RETURN(const Buffer many, bed.device.Allocate(bytes * size));
    const TensorView sum = TensorView::Of(one.data(), DType::kF32, {kCount}, DeviceType::kCuda);
    const TensorView out =
        TensorView::Of(many.data(), DType::kF32, {size * kCount}, DeviceType::kCuda);
    const std::vector<int64_t> counts(static_cast<size_t>(size), kCount);
    RETURN_IF_ERROR(bed.device.BeginCapture(bed.stream));
    RETURN_IF_ERROR(bed.comm.AllReduceSum(sum, bed.stream));
    RETURN_IF_ERROR(bed.comm.AllGather(sum, counts.data(), out, bed.stream));
    ASSIGN_OR_RETURN(const Graph graph, bed.device.EndCapture(bed.stream));
    for (int round = 1; round <= 3; ++round) {
      std::fill(x.begin(), x.end(), static_cast<float>(round * (bed.comm.rank() + 1)));
      RETURN_IF_ERROR(
          bed.device.Copy(one.data(), x.data(), bytes, CopyKind::kHostToDevice, bed.stream));
      RETURN_IF_ERROR(bed.device.Launch(graph, bed.stream));
      RETURN_IF_ERROR(bed.device.Copy(all.data(), many.data(), bytes * size,
                                      CopyKind::kDeviceToHost, bed.stream));
      RETURN_IF_ERROR(bed.device.Synchronize(bed.stream));
      const float want = static_cast<float>(round * size * (size + 1) / 2);
      for (const float got : all) {
        if (got != want) return absl::InternalError("a graph's collective gave a wrong sum");
      }
    }
    return Meet(bed, "graphs");
  });
}

// Rank 0 never comes; the others' kernels wait for it until they are told to stop.
TEST_P(NcclOnAGpu, AbortEndsACollectiveThatRuns) {
  if (GetParam() == 1) return;
  OnRanks(GetParam(), [](const RankBed& bed) -> absl::Status {
    RETURN_IF_ERROR(bed.comm.Barrier(bed.stream));  // makes the connections
    RETURN_IF_ERROR(bed.device.Synchronize(bed.stream));
    if (bed.comm.rank() != 0) {
      RETURN_IF_ERROR(bed.comm.Barrier(bed.stream));
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        bed.comm.Abort();
      });
      const absl::Time begin = absl::Now();
      const absl::Status ended = bed.device.Synchronize(bed.stream);
      other.join();
      RETURN_IF_ERROR(ended);
      EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
      EXPECT_EQ(bed.comm.Barrier(bed.stream).code(), absl::StatusCode::kUnavailable);
      bed.comm.Abort();  // any number of times
    }
    return Meet(bed, "aborted");
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclOnAGpu, testing::ValuesIn(GroupSizes()));

TEST(ConnectNcclTest, NamesTheRankThatIsMissingOnAGpu) {
  if (NcclVersion().empty() || CudaDeviceCount() < 1) GTEST_SKIP() << "needs a GPU and NCCL";
  const absl::StatusOr<std::unique_ptr<Device>> device = CreateCudaDevice(0);
  ASSERT_TRUE(device.ok()) << device.status();
  LocalStore store;
  const absl::Status status =
      ConnectNccl({.rank = 0, .size = 2, .connect_timeout = absl::Milliseconds(200)}, store,
                  **device)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_NE(status.message().find("nccl/ready/1"), std::string::npos) << status;
}

}  // namespace
}  // namespace millrace
