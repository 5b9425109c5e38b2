#include "distributed/controller/frontdoor/live_calls.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

class FakeCall final : public LiveCall {
 public:
  void Abort() override { ++aborts; }
  void Tick(MonotonicTime) override { ++ticks; }
  int aborts = 0;
  int ticks = 0;
};

TEST(LiveCalls, IdsAreUniqueWhileTheyRun) {
  LiveCalls calls;
  const auto first = std::make_shared<FakeCall>();
  ASSERT_TRUE(calls.Add("a", first).ok());
  EXPECT_EQ(calls.Add("a", std::make_shared<FakeCall>()).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(calls.running(), 1);
  calls.ReleaseId("a");
  EXPECT_EQ(calls.running(), 0);
  EXPECT_TRUE(calls.Add("a", std::make_shared<FakeCall>()).ok());
}

TEST(LiveCalls, TicksUntilRemoved) {
  LiveCalls calls;
  const auto call = std::make_shared<FakeCall>();
  ASSERT_TRUE(calls.Add("a", call).ok());
  calls.TickAll(MonotonicNow());
  calls.ReleaseId("a");  // has its answer, but the client may not have it yet
  calls.TickAll(MonotonicNow());
  EXPECT_EQ(call->ticks, 2);
  calls.Remove(call.get());
  calls.Remove(call.get());
  calls.TickAll(MonotonicNow());
  EXPECT_EQ(call->ticks, 2);
  EXPECT_EQ(call.use_count(), 1);
}

TEST(LiveCalls, AbortIsExactAndForgivesTheLatelyEnded) {
  LiveCalls calls;
  const auto one = std::make_shared<FakeCall>();
  const auto twelve = std::make_shared<FakeCall>();
  ASSERT_TRUE(calls.Add("1", one).ok());
  ASSERT_TRUE(calls.Add("12", twelve).ok());
  EXPECT_EQ(calls.Abort({"1", "2", ""}), (std::vector<std::string>{"2", ""}));
  EXPECT_EQ(one->aborts, 1);
  EXPECT_EQ(twelve->aborts, 0);
  calls.ReleaseId("1");
  EXPECT_TRUE(calls.Abort({"1"}).empty());
  EXPECT_EQ(one->aborts, 1);
}

TEST(LiveCalls, OnlySoManyEndedIdsAreKept) {
  LiveCalls calls;
  for (int i = 0; i < 5000; ++i) {
    const std::string id = absl::StrCat("call ", i);
    ASSERT_TRUE(calls.Add(id, std::make_shared<FakeCall>()).ok());
    calls.ReleaseId(id);
  }
  EXPECT_EQ(calls.Abort({"call 0", "call 4999"}), std::vector<std::string>{"call 0"});
}

}  // namespace
}  // namespace millrace
