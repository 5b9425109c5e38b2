// The conformance suite over ranks that are processes, and what happens when one of them dies.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "distributed/comm/conformance.h"
#include "distributed/comm/connect.h"
#include "distributed/comm/directory_store.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

using Body = std::function<absl::Status(SlotCommunicator&, KeyValueStore&)>;

// Set "x/rank" and wait for everyone's.
absl::Status Meet(const Communicator& c, KeyValueStore& store, const std::string& name) {
  RETURN_IF_ERROR(store.Set(name + "/" + std::to_string(c.rank()), ""));
  for (int32_t r = 0; r < c.size(); ++r) {
    RETURN_IF_ERROR(store.Get(name + "/" + std::to_string(r), absl::Seconds(30)).status());
  }
  return absl::OkStatus();
}

class ProcessesTest : public testing::TestWithParam<CollectiveTransport> {
 protected:
  // Forks one process a rank; returns the exit status of each as waitpid gives it.
  std::vector<int> Run(int32_t size, const Body& body) {
    std::string folder = testing::TempDir() + "/ranksXXXXXX";
    if (mkdtemp(folder.data()) == nullptr) return {};
    std::vector<pid_t> children;
    for (int32_t rank = 0; rank < size; ++rank) {
      const pid_t child = fork();
      if (child == 0) _exit(Child(rank, size, folder, body));
      children.push_back(child);
    }
    std::vector<int> statuses;
    for (const pid_t child : children) {
      int status = -1;
      waitpid(child, &status, 0);
      statuses.push_back(status);
    }
    return statuses;
  }

 private:
  static int Child(int32_t rank, int32_t size, const std::string& folder, const Body& body) {
    signal(SIGPIPE, SIG_IGN);
    DirectoryStore store(folder);
    auto c = ConnectGroup(
        {.rank = rank, .size = size, .transport = GetParam(), .timeout = absl::Seconds(20)}, store);
    absl::Status status = c.ok() ? Meet(**c, store, "begin") : c.status();
    if (status.ok()) status = body(**c, store);
    if (!status.ok()) std::cerr << "rank " << rank << ": " << status << "\n";
    return status.ok() ? 0 : 1;
  }
};

TEST_P(ProcessesTest, Collectives) {
  for (const int32_t size : {2, 3}) {
    const std::vector<int> statuses =
        Run(size, [](SlotCommunicator& c, KeyValueStore& store) -> absl::Status {
          const bool shared = GetParam() == CollectiveTransport::kAuto;
          if (c.Describe() != (shared ? "shared memory" : "gloo on 127.0.0.1")) {
            return absl::InternalError(c.Describe());
          }
          RETURN_IF_ERROR(CheckCollectives(c));
          return Meet(c, store, "end");
        });
    EXPECT_EQ(statuses, std::vector<int>(static_cast<size_t>(size), 0));
  }
}

TEST_P(ProcessesTest, Abort) {
  EXPECT_EQ(Run(3,
                [](SlotCommunicator& c, KeyValueStore& store) -> absl::Status {
                  RETURN_IF_ERROR(CheckAbort(c));
                  return Meet(c, store, "end");
                }),
            std::vector<int>(3, 0));
}

// A rank that is killed is noticed at once, not at the time-out.
TEST_P(ProcessesTest, KilledRank) {
  const std::vector<int> statuses = Run(3, [](SlotCommunicator& c, KeyValueStore&) -> absl::Status {
    RETURN_IF_ERROR(c.Barrier({}));
    if (c.rank() == 1) kill(getpid(), SIGKILL);
    const absl::Time begin = absl::Now();
    const absl::Status status = c.Barrier({});
    if (status.code() != absl::StatusCode::kUnavailable)
      return absl::InternalError("want UNAVAILABLE, got " + status.ToString());
    if (absl::Now() - begin > absl::Seconds(10)) return absl::InternalError("took too long");
    return absl::OkStatus();
  });
  ASSERT_EQ(statuses.size(), 3u);
  EXPECT_EQ(statuses[0], 0);
  EXPECT_TRUE(WIFSIGNALED(statuses[1]));
  EXPECT_EQ(statuses[2], 0);
}

INSTANTIATE_TEST_SUITE_P(All, ProcessesTest,
                         testing::Values(CollectiveTransport::kAuto, CollectiveTransport::kGloo),
                         [](const testing::TestParamInfo<CollectiveTransport>& info) {
                           return info.param == CollectiveTransport::kAuto ? "Shared" : "Gloo";
                         });

}  // namespace
}  // namespace millrace
