// A controller process that does nothing but decode on its workers, for tests that stop or kill it.
#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/time/clock.h"
#include "distributed/controller/cluster/worker_hub.h"
#include "distributed/session/secret.h"
#include "distributed/session/version.h"
#include "tests/stress/decode_loop.h"
#include "tests/stress/listener.h"

ABSL_FLAG(int, port, 0, "where workers dial in");
ABSL_FLAG(int, world, 2, "workers");
ABSL_FLAG(std::string, secret_file, "", "the cluster's secret");

namespace millrace {
namespace {

int Main() {
  RecordingListener listener;
  WorkerHubOptions options;
  options.port = absl::GetFlag(FLAGS_port);
  options.secret = ReadSecretFile(absl::GetFlag(FLAGS_secret_file)).value_or("");
  options.build_version = std::string(kBuildVersion);
  options.config = TestConfig();
  options.world = absl::GetFlag(FLAGS_world);
  options.vocab_size = kTestVocab;
  options.num_pages = kTestPages;
  const auto hub = WorkerHub::Start(options, &listener);
  if (!hub.ok()) {
    std::cerr << hub.status() << std::endl;
    return 1;
  }
  std::cout << "port " << (*hub)->port() << "." << std::endl;
  const auto group = (*hub)->WaitForGroup();
  if (!group.ok()) {
    std::cerr << group.status() << std::endl;
    return 1;
  }
  std::cout << "ready." << std::endl;
  for (int64_t step = 1;; ++step) {
    if (!group->executor->Launch(StepPlan{.step = step, .sequences = {}}).ok()) break;
    if (!group->executor->Collect().ok()) break;
    absl::SleepFor(absl::Milliseconds(1));
  }
  std::cout << "the group is lost." << std::endl;
  return 1;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return millrace::Main();
}
