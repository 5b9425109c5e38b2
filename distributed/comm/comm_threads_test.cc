// The conformance suite over ranks that are threads of this process.
#include <gtest/gtest.h>
#include <signal.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "distributed/comm/conformance.h"
#include "distributed/comm/connect.h"
#include "distributed/comm/local_store.h"
#include "distributed/comm/self_test.h"
#include "engine/parallel/thread_group.h"
#include "kernels/core/status.h"
#include "kernels/cpu/cpu_device.h"

namespace millrace {
namespace {

enum class Kind { kThreadGroup, kShared, kGloo };

struct Case {
  Kind kind;
  int32_t size;
};

std::string Name(const testing::TestParamInfo<Case>& info) {
  const char* kinds[] = {"ThreadGroup", "Shared", "Gloo"};
  return std::string(kinds[static_cast<int>(info.param.kind)]) + std::to_string(info.param.size);
}

// Runs `body` as each rank and reports its status.
void OnRanks(int32_t size, const std::function<absl::Status(int32_t)>& body) {
  std::vector<absl::Status> results(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < size; ++r) {
    threads.emplace_back([&, r] { results[static_cast<size_t>(r)] = body(r); });
  }
  for (std::thread& thread : threads) thread.join();
  for (int32_t r = 0; r < size; ++r) {
    EXPECT_TRUE(results[static_cast<size_t>(r)].ok()) << results[static_cast<size_t>(r)];
  }
}

absl::Status Meet(const Communicator& c, KeyValueStore& store, const std::string& name) {
  RETURN_IF_ERROR(store.Set(name + "/" + std::to_string(c.rank()), ""));
  for (int32_t r = 0; r < c.size(); ++r) {
    RETURN_IF_ERROR(store.Get(name + "/" + std::to_string(r), absl::Seconds(30)).status());
  }
  return absl::OkStatus();
}

class CommunicatorTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { signal(SIGPIPE, SIG_IGN); }

  void Run(const std::function<absl::Status(Communicator&)>& body,
           absl::Duration timeout = absl::Minutes(1)) {
    const Case param = GetParam();
    if (param.kind == Kind::kThreadGroup) {
      ThreadGroup group(param.size, timeout);
      OnRanks(param.size, [&](int32_t rank) { return body(group.communicator(rank)); });
      return;
    }
    LocalStore store;
    OnRanks(param.size, [&](int32_t rank) -> absl::Status {
      ConnectOptions options = {.rank = rank, .size = param.size, .timeout = timeout};
      if (param.kind == Kind::kGloo) options.transport = CollectiveTransport::kGloo;
      ASSIGN_OR_RETURN(const std::unique_ptr<SlotCommunicator> c, ConnectGroup(options, store));
      const char* want = param.kind == Kind::kGloo ? "gloo on 127.0.0.1" : "shared memory";
      EXPECT_EQ(c->Describe(), want);
      EXPECT_EQ(c->rank(), rank);
      EXPECT_EQ(c->size(), param.size);
      // Nobody aborts before all are connected or closes before all are through.
      RETURN_IF_ERROR(Meet(*c, store, "begin"));
      const absl::Status status = body(*c);
      RETURN_IF_ERROR(Meet(*c, store, "end"));
      return status;
    });
  }
};

TEST_P(CommunicatorTest, Collectives) {
  Run([](Communicator& c) { return CheckCollectives(c); });
}

TEST_P(CommunicatorTest, Abort) {
  if (GetParam().size > 1) Run(CheckAbort);
}

TEST_P(CommunicatorTest, AbortFromAnotherThread) {
  if (GetParam().size == 1) return;
  Run([](Communicator& c) -> absl::Status {
    if (c.rank() == 0) return absl::OkStatus();  // never comes
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      c.Abort();
    });
    const absl::Status status = c.Barrier({});
    other.join();
    return status.code() == absl::StatusCode::kUnavailable ? absl::OkStatus() : status;
  });
}

TEST_P(CommunicatorTest, TimeOut) {
  if (GetParam().size == 1) return;
  Run(
      [](Communicator& c) -> absl::Status {
        if (c.rank() == 0) return absl::OkStatus();  // never comes
        const absl::Status status = c.Barrier({});
        // The first to lose patience tells the others.
        EXPECT_TRUE(status.code() == absl::StatusCode::kDeadlineExceeded ||
                    status.code() == absl::StatusCode::kUnavailable)
            << status;
        EXPECT_FALSE(c.Barrier({}).ok());
        return absl::OkStatus();
      },
      absl::Milliseconds(200));
}

TEST_P(CommunicatorTest, SelfTest) {
  Run([](Communicator& c) -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<CpuDevice> device, CpuDevice::Create(1));
    return CollectiveSelfTest(c, *device);
  });
}

INSTANTIATE_TEST_SUITE_P(All, CommunicatorTest,
                         testing::Values(Case{Kind::kThreadGroup, 2}, Case{Kind::kThreadGroup, 3},
                                         Case{Kind::kShared, 1}, Case{Kind::kShared, 2},
                                         Case{Kind::kShared, 3}, Case{Kind::kShared, 5},
                                         Case{Kind::kGloo, 2}, Case{Kind::kGloo, 3},
                                         Case{Kind::kGloo, 5}),
                         Name);

// A communicator that gets a sum wrong.
class WrongSum final : public Communicator {
 public:
  int32_t rank() const override { return 0; }
  int32_t size() const override { return 1; }
  absl::Status AllReduceSum(const TensorView& x, Stream) override {
    x.as<float>()[17] += 1.0f;
    return absl::OkStatus();
  }
  absl::Status AllGather(const TensorView&, const int64_t*, const TensorView&, Stream) override {
    return absl::OkStatus();
  }
  absl::Status AllToAll(const TensorView&, const int64_t*, const TensorView&, const int64_t*,
                        Stream) override {
    return absl::OkStatus();
  }
  absl::Status Broadcast(const TensorView&, int32_t, Stream) override { return absl::OkStatus(); }
  absl::Status Barrier(Stream) override { return absl::OkStatus(); }
  void Abort() override {}
};

TEST(SelfTestTest, FindsAWrongNumber) {
  const std::unique_ptr<CpuDevice> device = CpuDevice::Create(1).value();
  WrongSum communicator;
  const absl::Status status = CollectiveSelfTest(communicator, *device);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(status.message().find("AllReduceSum: rank 0 of 1: element 17 = 6, want 5"),
            std::string::npos)
      << status;
}

TEST(ConnectTest, TimesOutWhenARankIsMissing) {
  for (const CollectiveTransport transport :
       {CollectiveTransport::kAuto, CollectiveTransport::kGloo}) {
    LocalStore store;
    const auto c = ConnectGroup(
        {.rank = 0, .size = 2, .transport = transport, .connect_timeout = absl::Milliseconds(100)},
        store);
    EXPECT_EQ(c.status().code(), absl::StatusCode::kDeadlineExceeded) << c.status();
  }
}

TEST(ConnectTest, FallsBackToGlooWhenOneRankSeesNoSegment) {
  // Rank 1 is told of a segment that does not exist, as on another host.
  class OtherHost final : public KeyValueStore {
   public:
    explicit OtherHost(KeyValueStore& store) : store_(store) {}
    absl::Status Set(const std::string& key, const std::string& value) override {
      return store_.Set(key, value);
    }
    absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override {
      ASSIGN_OR_RETURN(std::string value, store_.Get(key, timeout));
      if (key == "shm/where") value[value.size() - 1] ^= 1;  // the token of another segment
      return value;
    }

   private:
    KeyValueStore& store_;
  };
  LocalStore store;
  OtherHost other(store);
  OnRanks(2, [&](int32_t rank) -> absl::Status {
    KeyValueStore& mine = rank == 1 ? static_cast<KeyValueStore&>(other) : store;
    ASSIGN_OR_RETURN(const std::unique_ptr<SlotCommunicator> c,
                     ConnectGroup({.rank = rank, .size = 2}, mine));
    EXPECT_EQ(c->Describe(), "gloo on 127.0.0.1");
    RETURN_IF_ERROR(CheckCollectives(*c));
    return Meet(*c, store, "end");
  });
}

TEST(ConnectTest, LocalAddress) {
  EXPECT_EQ(LocalAddressTowards("127.0.0.1:80").value(), "127.0.0.1");
  EXPECT_FALSE(LocalAddressTowards("localhost").ok());
}

}  // namespace
}  // namespace millrace
