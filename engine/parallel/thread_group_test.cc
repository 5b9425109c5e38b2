#include "engine/parallel/thread_group.h"

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

// Runs body(communicator) on one thread per rank and returns the statuses.
std::vector<absl::Status> OnAllRanks(ThreadGroup& group,
                                     const std::function<absl::Status(Communicator&)>& body) {
  std::vector<absl::Status> statuses(static_cast<size_t>(group.size()));
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < group.size(); ++r) {
    threads.emplace_back(
        [&, r] { statuses[static_cast<size_t>(r)] = body(group.communicator(r)); });
  }
  for (std::thread& t : threads) t.join();
  return statuses;
}

void ExpectAllOk(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& s : statuses) EXPECT_TRUE(s.ok()) << s;
}

TensorView F32(std::vector<float>& x) {
  return TensorView::Of(x.data(), DType::kF32, {static_cast<int64_t>(x.size())});
}

TEST(ThreadGroupTest, SumsInRankOrderWithEqualBits) {
  for (int32_t size : {1, 2, 3, 5}) {
    for (size_t n : {size_t{0}, size_t{1}, size_t{4}, size_t{577}}) {
      std::mt19937 rng(7);
      std::normal_distribution<float> normal;
      std::vector<std::vector<float>> x(static_cast<size_t>(size), std::vector<float>(n));
      for (auto& row : x) {
        for (float& v : row) v = normal(rng) * 1e3f;
      }
      std::vector<float> want(n);
      for (size_t i = 0; i < n; ++i) {
        want[i] = x[0][i];
        for (size_t r = 1; r < x.size(); ++r) want[i] += x[r][i];
      }
      ThreadGroup group(size);
      ExpectAllOk(OnAllRanks(group, [&](Communicator& c) {
        return c.AllReduceSum(F32(x[static_cast<size_t>(c.rank())]), {});
      }));
      for (const auto& row : x) EXPECT_EQ(row, want);
    }
  }
}

TEST(ThreadGroupTest, BFloat16IsSummedInF32AndRoundedOnce) {
  // 1 + 2^-8 + 2^-8: rounding after each addition would lose both small terms.
  std::vector<std::vector<BFloat16>> x = {
      {ToBFloat16(1.0f)}, {ToBFloat16(1.0f / 256)}, {ToBFloat16(1.0f / 256)}};
  ThreadGroup group(3);
  ExpectAllOk(OnAllRanks(group, [&](Communicator& c) {
    return c.AllReduceSum(
        TensorView::Of(x[static_cast<size_t>(c.rank())].data(), DType::kBF16, {1}), {});
  }));
  for (const auto& row : x) EXPECT_EQ(ToFloat(row[0]), 1.0f + 1.0f / 128);
}

// Rank r sends 10 r + i to rank i, i + r times.
TEST(ThreadGroupTest, ExchangesUnevenParts) {
  ThreadGroup group(3);
  ExpectAllOk(OnAllRanks(group, [&](Communicator& c) {
    std::vector<float> in, want;
    std::vector<int64_t> send, receive;
    for (int32_t r = 0; r < 3; ++r) {
      send.push_back(r + c.rank());
      receive.push_back(r + c.rank());
      in.insert(in.end(), static_cast<size_t>(send.back()), static_cast<float>(10 * c.rank() + r));
      want.insert(want.end(), static_cast<size_t>(receive.back()),
                  static_cast<float>(10 * r + c.rank()));
    }
    std::vector<float> out(want.size());
    const absl::Status status = c.AllToAll(F32(in), send.data(), F32(out), receive.data(), {});
    EXPECT_EQ(out, want);
    return status;
  }));
}

TEST(ThreadGroupTest, CountsThatDisagreeAreAnError) {
  ThreadGroup group(2);
  const std::vector<absl::Status> statuses = OnAllRanks(group, [&](Communicator& c) {
    std::vector<float> in(3), out(2);
    const int64_t send[] = {1, 2};
    const int64_t receive[] = {1, 1};
    return c.AllToAll(F32(in), send, F32(out), receive, {});
  });
  EXPECT_TRUE(statuses[0].ok());  // it gets what it asked for
  EXPECT_NE(std::string(statuses[1].message()).find("counts"), std::string::npos);
}

TEST(ThreadGroupTest, GathersUnevenPartsAndBroadcasts) {
  ThreadGroup group(3);
  const int64_t counts[] = {2, 0, 3};
  ExpectAllOk(OnAllRanks(group, [&](Communicator& c) {
    std::vector<float> in(static_cast<size_t>(counts[c.rank()]), static_cast<float>(c.rank() + 1));
    std::vector<float> out(5);
    absl::Status status = c.AllGather(F32(in), counts, F32(out), {});
    EXPECT_EQ(out, (std::vector<float>{1, 1, 3, 3, 3}));
    std::vector<float> word(4, static_cast<float>(c.rank()));
    if (status.ok()) status = c.Broadcast(F32(word), 2, {});
    EXPECT_EQ(word, (std::vector<float>(4, 2)));
    return status;
  }));
}

TEST(ThreadGroupTest, ManyCollectivesStayInStep) {
  ThreadGroup group(3);
  ExpectAllOk(OnAllRanks(group, [&](Communicator& c) {
    for (int i = 0; i < 2000; ++i) {
      std::vector<float> x(static_cast<size_t>(1 + i % 5), static_cast<float>(c.rank() + i));
      if (absl::Status s = c.AllReduceSum(F32(x), {}); !s.ok()) return s;
      if (x.back() != static_cast<float>(3 + 3 * i)) return absl::InternalError("wrong sum");
      if (i % 7 == 0) {
        if (absl::Status s = c.Barrier({}); !s.ok()) return s;
      }
    }
    return absl::OkStatus();
  }));
}

TEST(ThreadGroupTest, AbortEndsAWaitAndEveryLaterCall) {
  ThreadGroup group(2);
  std::vector<float> x(1);
  absl::Status waiting;
  std::thread rank0([&] { waiting = group.communicator(0).AllReduceSum(F32(x), {}); });
  group.communicator(1).Abort();
  rank0.join();
  EXPECT_EQ(waiting.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(group.communicator(1).Barrier({}).code(), absl::StatusCode::kUnavailable);
}

TEST(ThreadGroupTest, AMissingRankIsATimeOutForAll) {
  ThreadGroup group(3, absl::Milliseconds(20));
  std::vector<std::vector<float>> x(3, std::vector<float>(1));
  const std::vector<absl::Status> statuses = OnAllRanks(group, [&](Communicator& c) {
    if (c.rank() == 2) return absl::OkStatus();
    return c.AllReduceSum(F32(x[static_cast<size_t>(c.rank())]), {});
  });
  for (int r : {0, 1}) {
    EXPECT_EQ(statuses[r].code(), absl::StatusCode::kDeadlineExceeded) << statuses[r];
    EXPECT_NE(std::string(statuses[r].message()).find("AllReduceSum"), std::string::npos);
  }
  EXPECT_FALSE(group.communicator(2).Barrier({}).ok());
}

TEST(ThreadGroupTest, DisagreementIsAnErrorOnEveryRank) {
  ThreadGroup group(2);
  std::vector<std::vector<float>> x = {std::vector<float>(2), std::vector<float>(3)};
  for (const absl::Status& s : OnAllRanks(group, [&](Communicator& c) {
         return c.AllReduceSum(F32(x[static_cast<size_t>(c.rank())]), {});
       })) {
    EXPECT_EQ(s.code(), absl::StatusCode::kInternal);
    EXPECT_NE(std::string(s.message()).find("disagree"), std::string::npos);
  }
}

TEST(ThreadGroupTest, BadTensorsAreRefusedAtTheDoor) {
  ThreadGroup group(1);
  std::vector<int32_t> ids(4);
  Communicator& c = group.communicator(0);
  EXPECT_EQ(c.AllReduceSum(TensorView::Of(ids.data(), DType::kI32, {4}), {}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(c.Broadcast(TensorView::Of(ids.data(), DType::kI32, {4}), 1, {}).ok());
  const TensorView strided = TensorView::Of(ids.data(), DType::kI32, {2, 2}).Cols(0, 1);
  EXPECT_FALSE(c.Broadcast(strided, 0, {}).ok());
}

}  // namespace
}  // namespace millrace
