// Hub and workers in one process, with the fake model.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/controller/cluster/worker_hub.h"
#include "distributed/session/version.h"
#include "distributed/worker/fake_model.h"
#include "distributed/worker/worker.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/stress/decode_loop.h"
#include "tests/stress/listener.h"

namespace millrace {
namespace {

constexpr char kSecret[] = "a secret of the tests";

// A worker with its own thread.
class TestWorker final {
 public:
  TestWorker(int32_t port, FakeModelOptions model, WorkerOptions options = {})
      : device_(CpuDevice::Create(1).value()), factory_(std::move(model)) {
    options.controller = absl::StrCat("127.0.0.1:", port);
    if (options.secret.empty()) options.secret = kSecret;
    if (options.build_version.empty()) options.build_version = std::string(kBuildVersion);
    if (options.protocol_revision.empty()) options.protocol_revision = ProtocolRevision();
    worker_ = std::make_unique<Worker>(options, *device_, factory_, [](const std::string&) {});
    thread_ = std::thread([this] { status_ = worker_->Run(); });
  }
  ~TestWorker() { Stop().IgnoreError(); }

  // Its Run's status.
  absl::Status Stop() {
    worker_->Stop();
    return Wait();
  }
  absl::Status Wait() {
    if (thread_.joinable()) thread_.join();
    return status_;
  }

 private:
  const std::unique_ptr<CpuDevice> device_;
  FakeModelFactory factory_;
  std::unique_ptr<Worker> worker_;
  absl::Status status_;
  std::thread thread_;
};

class ClusterTest : public testing::Test {
 protected:
  void StartHub(int32_t world, WorkerHubOptions options = {}) {
    options.secret = kSecret;
    options.build_version = std::string(kBuildVersion);
    const int32_t groups = options.config.data_parallel_size;
    options.config = TestConfig();
    options.config.data_parallel_size = groups;
    options.world = world;
    options.vocab_size = kTestVocab;
    if (options.num_pages == 0) options.num_pages = kTestPages;
    hub_ = WorkerHub::Start(options, &listener_).value();
  }
  std::unique_ptr<TestWorker> Add(FakeModelOptions model = {}, WorkerOptions options = {}) {
    return std::make_unique<TestWorker>(hub_->port(), std::move(model), std::move(options));
  }

  RecordingListener listener_;
  std::unique_ptr<WorkerHub> hub_;
};

TEST_F(ClusterTest, DecodesOnOneTwoAndThreeRanks) {
  for (const int32_t world : {1, 2, 3}) {
    listener_.Clear();
    StartHub(world);
    std::vector<std::unique_ptr<TestWorker>> workers;
    for (int32_t i = 0; i < world; ++i) workers.push_back(Add());
    ReadyGroup group = hub_->WaitForGroup().value();
    EXPECT_EQ(group.info.num_pages, kTestPages);
    EXPECT_EQ(group.info.ranks.size(), static_cast<size_t>(world));
    DecodeLoop loop(*group.executor, 4);
    const absl::Status status = loop.Run(30);
    EXPECT_TRUE(status.ok()) << status << "\n" << listener_.All();
    EXPECT_EQ(listener_.Count("ready "), 1) << listener_.All();
    EXPECT_GE(listener_.Count("loading "), 1);
    hub_->Shutdown("the test is over");
    for (const auto& worker : workers) EXPECT_TRUE(worker->Wait().ok());
    EXPECT_EQ(group.executor->Launch({}).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(hub_->WaitForGroup().status().code(), absl::StatusCode::kCancelled);
    hub_.reset();
  }
}

TEST_F(ClusterTest, CaptureIsToldOfAsItGoes) {
  StartHub(2);
  // Twice the time between two messages; the slower rank counts, from when both have begun.
  const FakeModelOptions fast = {.graphs = 5, .graph_time = absl::Milliseconds(1)};
  const FakeModelOptions slow = {.graphs = 5, .graph_time = absl::Milliseconds(200)};
  const auto first = Add(fast);
  const auto second = Add(slow);
  EXPECT_TRUE(hub_->WaitForGroup().ok());
  for (int32_t done = 1; done <= 5; ++done) {
    EXPECT_GE(listener_.Count(absl::StrCat("capturing ", done, "/5")), 1) << listener_.All();
  }
  const std::string all = listener_.All();
  EXPECT_LT(all.find("loading "), all.find("capturing ")) << all;
  EXPECT_LT(all.rfind("capturing 5/5"), all.find("ready ")) << all;
}

TEST_F(ClusterTest, WithoutGraphsNothingIsCaptured) {
  StartHub(1);
  const auto only = Add();
  EXPECT_TRUE(hub_->WaitForGroup().ok());
  EXPECT_EQ(listener_.Count("capturing "), 0) << listener_.All();
}

// Two groups of two ranks with the same slots and pages, and a third without sequences.
TEST_F(ClusterTest, DataParallelGroupsKeepApart) {
  WorkerHubOptions hub;
  hub.config.data_parallel_size = 3;
  StartHub(6, hub);
  WorkerOptions options;
  options.tensor_parallel_size = 2;  // of a group
  std::vector<std::unique_ptr<TestWorker>> workers;
  for (int32_t i = 0; i < 6; ++i) workers.push_back(Add({}, options));
  ReadyGroup group = hub_->WaitForGroup().value();
  ASSERT_EQ(group.info.ranks.size(), 6u);
  DecodeLoop loop(*group.executor, 3, /*groups=*/2);
  const absl::Status status = loop.Run(30);
  EXPECT_TRUE(status.ok()) << status << "\n" << listener_.All();
}

// The others wait for it in a collective of all groups.
TEST_F(ClusterTest, AFailingRankEndsTheStepsOfAllGroups) {
  WorkerHubOptions hub;
  hub.config.data_parallel_size = 2;
  StartHub(4, hub);
  std::vector<std::unique_ptr<TestWorker>> workers;
  for (int32_t i = 0; i < 4; ++i) workers.push_back(Add({.fail_step = 3, .fail_rank = 3}));
  ReadyGroup group = hub_->WaitForGroup().value();
  const absl::Status status = DecodeLoop(*group.executor, 1).Run(10);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_NE(status.message().find("the op that was told to fail"), std::string::npos) << status;
}

TEST_F(ClusterTest, GlooWorksToo) {
  StartHub(2);
  WorkerOptions gloo;
  gloo.transport = CollectiveTransport::kGloo;
  const auto first = Add({}, gloo);
  const auto second = Add({}, gloo);
  ReadyGroup group = hub_->WaitForGroup().value();
  EXPECT_EQ(group.info.ranks[0].transport, "gloo on 127.0.0.1");
  EXPECT_TRUE(DecodeLoop(*group.executor, 2).Run(10).ok());
}

TEST_F(ClusterTest, MismatchesAreRefusedWithADiff) {
  WorkerHubOptions hub;
  hub.model_fingerprint = "f00d";
  StartHub(2, hub);
  WorkerOptions options;
  options.build_version = "9.9";
  EXPECT_NE(
      Add({}, options)
          ->Wait()
          .message()
          .find(absl::StrCat("build version: worker 9.9, controller ", std::string(kBuildVersion))),
      std::string::npos);
  options = {};
  options.protocol_revision = "other";
  EXPECT_EQ(Add({}, options)->Wait().code(), absl::StatusCode::kFailedPrecondition);
  options = {};
  options.tensor_parallel_size = 4;
  EXPECT_NE(Add({}, options)->Wait().message().find("worker 4, controller 2"), std::string::npos);
  options = {};
  options.model_dir = "/my/copy";
  FakeModelOptions other;
  other.fingerprint = "beef";
  EXPECT_NE(Add(other, options)->Wait().message().find("worker beef, controller f00d"),
            std::string::npos);
  EXPECT_GE(listener_.Count("refused a peer"), 1) << listener_.All();
  // One of another kind than those that are there.
  const auto first = Add({.fingerprint = "f00d"});
  listener_.WaitFor("waiting 1/2", absl::Seconds(10));
  options = {};
  options.device_kind = "cuda";
  EXPECT_NE(Add({}, options)->Wait().message().find("worker cuda, controller cpu"),
            std::string::npos);
  const auto second = Add({.fingerprint = "f00d"});
  EXPECT_TRUE(hub_->WaitForGroup().ok());
  // And one too many.
  const absl::Status full = Add()->Wait();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("group is full: 2 of 2"), std::string::npos) << full;
}

TEST_F(ClusterTest, AWrongModelFolderIsFoundBeforeLoading) {
  WorkerHubOptions hub;
  hub.model_fingerprint = "f00d";
  StartHub(2, hub);
  const auto first = Add({.fingerprint = "f00d"});
  const auto second = Add({.fingerprint = "beef"});
  const absl::Status status = hub_->WaitForGroup().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("fingerprint beef here, f00d at the controller"),
            std::string::npos)
      << status;
  EXPECT_EQ(listener_.Count("loading"), 0);
  EXPECT_EQ(second->Wait().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ClusterTest, WrongSecretIsRefusedOnBothSides) {
  StartHub(1);
  WorkerOptions options;
  options.secret = "another secret altogether";
  EXPECT_EQ(Add({}, options)->Wait().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(Add({}, options)->Wait().code(), absl::StatusCode::kUnauthenticated);
  const auto worker = Add();
  ASSERT_TRUE(hub_->WaitForGroup().ok()) << "the hub serves on";
  EXPECT_EQ(listener_.Count("refused a peer"), 1) << "once a minute\n" << listener_.All();
}

TEST_F(ClusterTest, AFailureToLoadIsTheStartsFailure) {
  StartHub(2);
  const FakeModelOptions bad = {.fail_rank = 1,
                                .load_error = absl::ResourceExhaustedError("3 GiB short")};
  const auto first = Add(bad);
  const auto second = Add(bad);
  const absl::Status status = hub_->WaitForGroup().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  for (const char* part : {"rank 1 (", "load: 3 GiB short"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status;
  }
  hub_->Shutdown("cannot start");
  const absl::Status ends[] = {first->Wait(), second->Wait()};
  EXPECT_NE(ends[0].ok(), ends[1].ok())
      << "one says what it lacks, the other was told to end: " << ends[0] << "; " << ends[1];
}

TEST_F(ClusterTest, ACacheThatDoesNotFitIsTheStartsFailure) {
  WorkerHubOptions hub;
  hub.num_pages = 1 << 20;
  StartHub(1, hub);
  const auto worker = Add();
  const absl::Status status = hub_->WaitForGroup().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("GiB short"), std::string::npos) << status;
}

TEST_F(ClusterTest, AFailedStepEndsTheGroupAndTheNextOneServes) {
  StartHub(2);
  const FakeModelOptions bad = {.fail_step = 7, .fail_rank = 1};
  const auto first = Add(bad);
  const auto second = Add(bad);
  for (int round = 0; round < 3; ++round) {
    ReadyGroup group = hub_->WaitForGroup().value();
    DecodeLoop loop(*group.executor, 3);
    EXPECT_TRUE(loop.Run(4).ok());
    const absl::Status status = loop.Run(20);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    for (const char* part : {"rank 1 (", "step 7", "told to fail"}) {
      EXPECT_NE(status.message().find(part), std::string::npos) << status;
    }
  }
  EXPECT_TRUE(first->Stop().ok());
  EXPECT_TRUE(second->Stop().ok());
}

TEST_F(ClusterTest, AWorkerThatLeavesIsReplaced) {
  StartHub(2);
  auto first = Add();
  const auto second = Add();
  ReadyGroup group = hub_->WaitForGroup().value();
  EXPECT_TRUE(DecodeLoop(*group.executor, 1).Run(5).ok());
  EXPECT_TRUE(first->Stop().ok());
  EXPECT_NE(listener_.WaitFor("it left", absl::Seconds(10)), absl::InfiniteFuture());
  // The listener is told a moment before the executor: a step may still be taken in.
  EXPECT_EQ(DecodeLoop(*group.executor, 1).Run(1).code(), absl::StatusCode::kUnavailable);
  first = Add();
  ReadyGroup next = hub_->WaitForGroup().value();
  EXPECT_NE(next.info.id, group.info.id);
  EXPECT_TRUE(DecodeLoop(*next.executor, 4).Run(20).ok());
}

TEST_F(ClusterTest, StartUpEndsWithTheNumberOfMissingWorkers) {
  WorkerHubOptions hub;
  hub.startup_timeout = absl::Milliseconds(500);
  StartHub(3, hub);
  const auto worker = Add();
  const absl::Status status = hub_->WaitForGroup().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("1 of 3 workers came"), std::string::npos) << status;
}

TEST_F(ClusterTest, AStepThatHangsIsFoundByTheWatchdog) {
  WorkerHubOptions hub;
  hub.step_timeout = absl::Seconds(2);
  StartHub(2, hub);
  // The second to come is rank 1: it computes while rank 0 waits for it.
  const auto first = Add();
  listener_.WaitFor("waiting 1/2", absl::Seconds(10));
  const auto second = Add({.step_time = absl::Seconds(7)});
  ReadyGroup group = hub_->WaitForGroup().value();
  const absl::Time begin = absl::Now();
  const absl::Status status = DecodeLoop(*group.executor, 1).Run(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("rank 1 ("), std::string::npos) << status;
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
}

TEST_F(ClusterTest, OptionsAndPortAreChecked) {
  StartHub(1);
  WorkerHubOptions options;
  options.secret = kSecret;
  options.config = TestConfig();
  options.vocab_size = 1;
  options.port = hub_->port();
  const auto second = WorkerHub::Start(options, &listener_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable) << "the port is taken";
  EXPECT_NE(second.status().message().find("--worker-port"), std::string::npos);
  options.port = 0;
  options.secret = "short";
  EXPECT_EQ(WorkerHub::Start(options, &listener_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ClusterTest, NobodyThere) {
  WorkerOptions options;
  options.connect_timeout = absl::Milliseconds(300);
  TestWorker worker(1, {}, options);
  const absl::Status status = worker.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("no controller answers at 127.0.0.1:1"), std::string::npos);
}

}  // namespace
}  // namespace millrace
