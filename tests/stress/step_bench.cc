// Time of a step that computes nothing, through hub and worker processes: what the cluster adds.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "distributed/controller/cluster/worker_hub.h"
#include "distributed/session/secret.h"
#include "distributed/session/version.h"
#include "tests/stress/decode_loop.h"
#include "tests/stress/listener.h"
#include "tests/stress/process.h"

namespace millrace {
namespace {

// Eight sequences decode one token a step.
StepPlan Plan(int64_t step) {
  StepPlan plan = {.step = step, .sequences = {}};
  for (int32_t slot = 0; slot < 8; ++slot) {
    SequencePlan sequence;
    sequence.slot = slot;
    if (step == 1) {
      sequence.init = SlotInit{};
      sequence.tokens = {slot};
      sequence.new_pages = {slot};
    }
    sequence.sample = true;
    plan.sequences.push_back(sequence);
  }
  return plan;
}

bool Measure(int32_t world, const std::string& secret_file) {
  RecordingListener listener;
  WorkerHubOptions options;
  options.secret = ReadOrMakeSecretFile(secret_file).value_or("");
  options.build_version = std::string(kBuildVersion);
  options.config = TestConfig();
  options.world = world;
  options.vocab_size = kTestVocab;
  options.num_pages = kTestPages;
  const auto hub = WorkerHub::Start(options, &listener);
  if (!hub.ok()) return false;
  std::vector<std::unique_ptr<Process>> workers;
  for (int32_t i = 0; i < world; ++i) {
    workers.push_back(std::make_unique<Process>(
        "tests/stress/fake_worker",
        std::vector<std::string>{absl::StrCat("--controller=127.0.0.1:", (*hub)->port()),
                                 absl::StrCat("--secret_file=", secret_file)}));
  }
  const auto group = (*hub)->WaitForGroup();
  if (!group.ok()) return false;
  std::vector<double> micros;
  for (int64_t step = 1; step <= 5000; ++step) {
    const absl::Time begin = absl::Now();
    if (!group->executor->Launch(Plan(step)).ok() || !group->executor->Collect().ok()) return false;
    micros.push_back(absl::ToDoubleMicroseconds(absl::Now() - begin));
  }
  std::sort(micros.begin(), micros.end());
  std::cout << absl::StrFormat("%d workers, 8 sequences: %.0f us median, %.0f us p99 a step\n",
                               world, micros[micros.size() / 2], micros[micros.size() * 99 / 100])
            << std::flush;
  return true;
}

}  // namespace
}  // namespace millrace

int main() {
  std::string folder = "/tmp/step_benchXXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return 1;
  for (const int32_t world : {1, 2}) {
    if (!millrace::Measure(world, folder + "/secret")) return 1;
  }
  return 0;
}
