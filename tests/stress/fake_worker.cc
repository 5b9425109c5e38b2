// A worker process without a model, for tests: its tokens are hashes
// (distributed/worker/fake_model.h).
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/time/time.h"
#include "distributed/session/secret.h"
#include "distributed/session/version.h"
#include "distributed/worker/fake_model.h"
#include "distributed/worker/worker.h"
#include "kernels/cpu/cpu_device.h"

ABSL_FLAG(std::string, controller, "", "host:port");
ABSL_FLAG(std::string, secret_file, "", "the cluster's secret");
ABSL_FLAG(std::string, build_version, std::string(millrace::kBuildVersion), "as if built from it");
ABSL_FLAG(int, vocab_size, 1000, "of the fake model");
ABSL_FLAG(int, step_ms, 0, "time of a step");
ABSL_FLAG(int, load_ms, 0, "time to load");
ABSL_FLAG(double, connect_timeout, 20, "seconds");
ABSL_FLAG(bool, gloo, false, "collectives over gloo");

namespace millrace {
namespace {

int Main() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const auto secret = ReadSecretFile(absl::GetFlag(FLAGS_secret_file));
  const auto device = CpuDevice::Create(1);
  if (!secret.ok() || !device.ok()) {
    std::cerr << secret.status() << " " << device.status() << std::endl;
    return 1;
  }
  FakeModelFactory factory({.vocab_size = absl::GetFlag(FLAGS_vocab_size),
                            .step_time = absl::Milliseconds(absl::GetFlag(FLAGS_step_ms)),
                            .load_time = absl::Milliseconds(absl::GetFlag(FLAGS_load_ms))});
  WorkerOptions options = {.controller = absl::GetFlag(FLAGS_controller),
                           .secret = *secret,
                           .build_version = absl::GetFlag(FLAGS_build_version),
                           .protocol_revision = ProtocolRevision(),
                           .device_description = "fake"};
  options.connect_timeout = absl::Seconds(absl::GetFlag(FLAGS_connect_timeout));
  if (absl::GetFlag(FLAGS_gloo)) options.transport = CollectiveTransport::kGloo;
  Worker worker(options, **device, factory, [](const std::string& line) {
    std::cerr << line + "\n" << std::flush;
  });
  std::thread([&] {
    int number = 0;
    sigwait(&signals, &number);
    worker.Stop();
  }).detach();
  const absl::Status status = worker.Run();
  std::cerr << (status.ok() ? "done" : worker.Describe() + ": " + status.ToString()) << std::endl;
  _exit(status.ok() ? 0 : 1);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return millrace::Main();
}
