// Checks at the door on every device; the kernel with ranks that are streams of one GPU, which
// needs no second one, and with GPUs that reach each other in distributed/comm's peer_memory_test.
#include "kernels/all_reduce/all_reduce.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

constexpr float kEps = 1e-5f;
// One rounding to bf16 is 2^-9 relative.
constexpr Tolerance kTolerance = {1e-5, 1.0 / 256};

class AllReduceTest : public OpTest {};

TEST_P(AllReduceTest, RefusesWhatDoesNotFit) {
  GuardedTensor x(device(), DType::kBF16, {2, 8});
  GuardedTensor residual(device(), DType::kBF16, {2, 8});
  GuardedTensor weight(device(), DType::kBF16, {8});
  GuardedTensor y(device(), DType::kBF16, {2, 8});
  char memory = 0;
  const AllReduceRmsNormArgs good = {.peers = {.rank = 1,
                                               .size = 2,
                                               .max_bytes = 32,
                                               .inboxes = {&memory, &memory},
                                               .state = &memory},
                                     .x = x.view(),
                                     .residual = residual.view(),
                                     .weight = weight.view(),
                                     .y = y.view(),
                                     .eps = kEps};
  const auto refusal = [&](auto change) {
    AllReduceRmsNormArgs args = good;
    change(args);
    return std::string(AllReduceRmsNorm(ctx(), args).message());
  };
  if (device().type() == DeviceType::kCpu) {
    EXPECT_EQ(refusal([](AllReduceRmsNormArgs&) {}),
              "AllReduceRmsNorm: no kernel for cpu in this build");
  }
  EXPECT_EQ(refusal([](AllReduceRmsNormArgs& a) { a.eps = 0; }),
            "AllReduceRmsNorm: eps must be positive");
  EXPECT_EQ(refusal([](AllReduceRmsNormArgs& a) { a.peers.max_bytes = 31; }),
            "AllReduceRmsNorm: a message of 32 bytes, at most 31");
  for (const int32_t rank : {-1, 2}) {
    EXPECT_EQ(refusal([&](AllReduceRmsNormArgs& a) { a.peers.rank = rank; }),
              "AllReduceRmsNorm: the peers are not complete");
  }
  EXPECT_EQ(refusal([](AllReduceRmsNormArgs& a) { a.peers.size = 3; }),
            "AllReduceRmsNorm: the peers are not complete");
  EXPECT_EQ(refusal([](AllReduceRmsNormArgs& a) { a.peers.size = 9; }),
            "AllReduceRmsNorm: the peers are not complete");
  EXPECT_EQ(refusal([](AllReduceRmsNormArgs& a) { a.peers.state = nullptr; }),
            "AllReduceRmsNorm: the peers are not complete");
  EXPECT_EQ(refusal([](AllReduceRmsNormArgs& a) { a.x = a.x.Cols(0, 4); }),
            "AllReduceRmsNorm: residual.dim(1) = 8, want 4");
  EXPECT_EQ(refusal([](AllReduceRmsNormArgs& a) {
              a.x = a.x.Cols(0, 6);
              a.residual = a.residual.Cols(0, 6);
              a.weight = a.weight.Cols(0, 6);
              a.y = a.y.Cols(0, 6);
            }),
            "AllReduceRmsNorm: rows of 6 elements, want a multiple of 4, at most 16384");
  EXPECT_EQ(refusal([](AllReduceRmsNormArgs& a) {
              a.x = a.x.Cols(1, 5);
              a.residual = a.residual.Cols(0, 4);
              a.weight = a.weight.Cols(0, 4);
              a.y = a.y.Cols(0, 4);
            }),
            "AllReduceRmsNorm: every row must start on 8 bytes");
}

INSTANTIATE_TEST_SUITE_P(Devices, AllReduceTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

// Ranks whose inboxes lie on one GPU, each with a stream. Their blocks must run at the same time,
// so: few tokens, few ranks.
class Ranks final {
 public:
  Ranks(Device& device, int32_t size, int64_t max_bytes) : device_(device) {
    AllReducePeers peers = {.size = size, .max_bytes = max_bytes};
    for (int32_t r = 0; r < size; ++r) {
      buffers_.push_back(device.Allocate(AllReduceInboxBytes(size, max_bytes)).value());
      peers.inboxes[static_cast<size_t>(r)] = buffers_.back().data();
    }
    for (int32_t r = 0; r < size; ++r) {
      buffers_.push_back(device.Allocate(kAllReduceStateBytes).value());
      peers.rank = r;
      peers.state = buffers_.back().data();
      peers_.push_back(peers);
      streams_.push_back(device.CreateStream().value());
    }
    rescue_ = device.CreateStream().value();
  }
  ~Ranks() {
    for (const Stream stream : streams_) device_.DestroyStream(stream);
    device_.DestroyStream(rescue_);
  }

  int32_t size() const { return static_cast<int32_t>(peers_.size()); }
  const AllReducePeers& peers(int32_t r) const { return peers_[static_cast<size_t>(r)]; }
  Stream stream(int32_t r) const { return streams_[static_cast<size_t>(r)]; }
  OpContext ctx(int32_t r) { return {device_, stream(r), workspace_}; }

  // Waits for all; ends a call that hangs and returns false.
  bool Wait() {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    bool in_time = true;
    for (int32_t r = 0; r < size(); ++r) {
      const Event event = device_.CreateEvent().value();
      if (!device_.Record(event, stream(r)).ok()) return false;
      while (in_time && !device_.IsDone(event).value()) in_time = absl::Now() < deadline;
    }
    const int32_t stop = 1;
    for (const AllReducePeers& peers : peers_) {
      if (in_time) break;
      (void)device_.Copy(static_cast<char*>(peers.state) + kAllReduceStopOffset, &stop,
                         sizeof(stop), CopyKind::kHostToDevice, rescue_);
    }
    for (const Stream stream : streams_) in_time &= device_.Synchronize(stream).ok();
    return in_time;
  }

 private:
  Device& device_;
  std::vector<Buffer> buffers_;
  std::vector<AllReducePeers> peers_;
  std::vector<Stream> streams_;
  Stream rescue_;
  Workspace workspace_;
};

// One rank's operands.
struct Operands {
  Operands(Device& device, int64_t tokens, int64_t size, int64_t padding)
      : x(device, DType::kBF16, {tokens, size}, padding),
        residual(device, DType::kBF16, {tokens, size}, padding),
        weight(device, DType::kBF16, {size}),
        y(device, DType::kBF16, {tokens, size}, padding) {}
  // The same residual and weight on each rank.
  void Fill(int32_t rank, uint64_t seed) {
    TestRng shared(seed), own(seed * 31 + static_cast<uint64_t>(rank) + 1);
    residual.SetNormal(shared, 2.0);
    weight.SetUniform(shared, -1.5, 1.5);
    x.SetNormal(own);
  }
  AllReduceRmsNormArgs Args(const AllReducePeers& peers) const {
    return {.peers = peers,
            .x = x.view(),
            .residual = residual.view(),
            .weight = weight.view(),
            .y = y.view(),
            .eps = kEps};
  }

  GuardedTensor x, residual, weight, y;
};

std::vector<double> Normalised(const std::vector<double>& h, const std::vector<double>& weight) {
  const size_t size = weight.size();
  std::vector<double> y(h.size());
  for (size_t row = 0; row < h.size(); row += size) {
    double sum = 0;
    for (size_t i = 0; i < size; ++i) sum += h[row + i] * h[row + i];
    const double scale = 1 / std::sqrt(sum / static_cast<double>(size) + kEps);
    for (size_t i = 0; i < size; ++i) y[row + i] = h[row + i] * scale * weight[i];
  }
  return y;
}

struct Shape {
  int64_t tokens, size, padding;
};

class AllReduceOnAGpu : public ::testing::TestWithParam<int32_t> {
 protected:
  void SetUp() override {
    if (CudaDeviceCount() == 0) GTEST_SKIP() << "needs a GPU";
    device_ = CreateCudaDevice(0).value();
  }

  void Check(Ranks& ranks, const Shape& shape, uint64_t seed) {
    SCOPED_TRACE(testing::Message() << shape.tokens << "x" << shape.size << " seed " << seed);
    std::vector<std::unique_ptr<Operands>> all;
    std::vector<double> want(static_cast<size_t>(shape.tokens * shape.size));
    for (int32_t r = 0; r < ranks.size(); ++r) {
      all.push_back(std::make_unique<Operands>(*device_, shape.tokens, shape.size, shape.padding));
      all.back()->Fill(r, seed);
      const std::vector<double> x = all.back()->x.Get();
      for (size_t i = 0; i < x.size(); ++i) want[i] += x[i];
    }
    const std::vector<double> before = all[0]->residual.Get();
    for (size_t i = 0; i < want.size(); ++i) want[i] += before[i];
    for (int32_t r = 0; r < ranks.size(); ++r) {
      const Operands& operands = *all[static_cast<size_t>(r)];
      ASSERT_TRUE(AllReduceRmsNorm(ranks.ctx(r), operands.Args(ranks.peers(r))).ok());
    }
    ASSERT_TRUE(ranks.Wait());
    const std::vector<double> h = all[0]->residual.Get();
    EXPECT_TRUE(AllClose(h, want, kTolerance));
    EXPECT_TRUE(AllClose(all[0]->y.Get(), Normalised(h, all[0]->weight.Get()), kTolerance));
    for (const std::unique_ptr<Operands>& operands : all) {
      EXPECT_EQ(operands->residual.GetBytes(), all[0]->residual.GetBytes());
      EXPECT_EQ(operands->y.GetBytes(), all[0]->y.GetBytes());
      for (const GuardedTensor* t :
           {&operands->x, &operands->residual, &operands->weight, &operands->y}) {
        EXPECT_TRUE(t->GuardsIntact());
      }
    }
  }

  std::unique_ptr<Device> device_;
};

TEST_P(AllReduceOnAGpu, SumsAddsAndNormalises) {
  Ranks ranks(*device_, GetParam(), int64_t{8} * 16384 * 2);
  const Shape shapes[] = {{1, 4, 0},    {1, 4096, 0}, {3, 576, 4},   {8, 8192, 0},
                          {2, 4100, 8}, {7, 132, 0},  {1, 16384, 0}, {8, 16384, 4}};
  for (uint64_t seed = 1; seed <= 6; ++seed) {  // long and short messages mixed
    for (const Shape& shape : shapes) Check(ranks, shape, seed);
  }
}

// More tokens than blocks: blocks take a second and a third one.
TEST_P(AllReduceOnAGpu, ManyTokensOnOneRank) {
  if (GetParam() != 1) return;
  Ranks ranks(*device_, 1, int64_t{700} * 64 * 2);
  Check(ranks, {700, 64, 0}, 5);
}

TEST_P(AllReduceOnAGpu, AStopEndsTheWait) {
  if (GetParam() == 1) return;
  Ranks ranks(*device_, GetParam(), 4096);
  Operands operands(*device_, 2, 64, 0);
  operands.Fill(0, 1);
  const int32_t stop = 1;
  ASSERT_TRUE(AllReduceRmsNorm(ranks.ctx(0), operands.Args(ranks.peers(0))).ok());
  const Stream other = ranks.stream(1);
  ASSERT_TRUE(device_
                  ->Copy(static_cast<char*>(ranks.peers(0).state) + kAllReduceStopOffset, &stop,
                         sizeof(stop), CopyKind::kHostToDevice, other)
                  .ok());
  EXPECT_TRUE(ranks.Wait());
}

// 10^5 calls in graphs, each call's outcome the next one's input: a packet of another call on one
// rank would leave it with bits of its own.
TEST_P(AllReduceOnAGpu, RanksStayTheSameForALongTime) {
  if (GetParam() > 2) return;
  constexpr int64_t kTokens = 4, kSize = 512;
  constexpr int kCalls = 100, kLaunches = 1000;
  Ranks ranks(*device_, GetParam(), kTokens * kSize * 2);
  std::vector<std::unique_ptr<Operands>> all;
  std::vector<Graph> graphs;
  for (int32_t r = 0; r < ranks.size(); ++r) {
    all.push_back(std::make_unique<Operands>(*device_, kTokens, kSize, 0));
    AllReduceRmsNormArgs args = all.back()->Args(ranks.peers(r));
    args.y = args.x;
    ASSERT_TRUE(device_->BeginCapture(ranks.stream(r)).ok());
    for (int i = 0; i < kCalls; ++i) {
      const int64_t tokens = 1 + i % kTokens;
      AllReduceRmsNormArgs some = args;
      some.x = some.y = args.x.Rows(0, tokens);
      some.residual = args.residual.Rows(0, tokens);
      ASSERT_TRUE(AllReduceRmsNorm(ranks.ctx(r), some).ok());
    }
    graphs.push_back(device_->EndCapture(ranks.stream(r)).value());
  }
  for (int launch = 0; launch < kLaunches; ++launch) {
    if (launch % 10 == 0) {
      for (int32_t r = 0; r < ranks.size(); ++r) {
        all[static_cast<size_t>(r)]->Fill(r, static_cast<uint64_t>(launch) + 1);
      }
    }
    for (int32_t r = 0; r < ranks.size(); ++r) {
      ASSERT_TRUE(device_->Launch(graphs[static_cast<size_t>(r)], ranks.stream(r)).ok());
    }
    if (launch % 10 != 9) continue;
    ASSERT_TRUE(ranks.Wait());
    const std::vector<uint8_t> first = all[0]->residual.GetBytes();
    for (const std::unique_ptr<Operands>& operands : all) {
      ASSERT_EQ(operands->residual.GetBytes(), first) << "after launch " << launch;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllReduceOnAGpu, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace millrace
