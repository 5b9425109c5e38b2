// The worker process: one rank of a model, at a controller's disposal.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "distributed/session/version.h"
#include "distributed/worker/runner_model.h"
#include "distributed/worker/worker.h"
#include "kernels/core/status.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cuda/cuda_device.h"
#include "tools/common/device_name.h"
#include "tools/common/flags.h"
#include "tools/serve/advice.h"
#include "tools/serve/cluster_secret.h"

ABSL_FLAG(std::string, controller, "127.0.0.1:50061",
          "host:port where the controller waits for workers");
ABSL_FLAG(std::string, cluster_secret_file, "",
          "file with the cluster's secret, readable by its owner only; default: made and kept in "
          "the user's cache folder");
ABSL_FLAG(std::string, device, "cpu", "what to compute on: cpu, cuda or cuda:N");
ABSL_FLAG(int, threads, 0, "threads to compute with; 0: one for each processor");
ABSL_FLAG(
    std::string, model, "",
    "this machine's copy of the model folder; default: the controller's path. The two must be "
    "the same model");
ABSL_FLAG(int, tensor_parallel_size, 0, "refuse to be part of a group of another size; 0: any");
ABSL_FLAG(double, connect_timeout, 60, "seconds to wait for the controller");
ABSL_FLAG(std::string, collectives, "auto",
          "how ranks exchange data: auto (shared memory on one host, else gloo) or gloo");

namespace millrace {
namespace {

void Log(const std::string& line) {
  const std::string text =
      absl::StrCat(absl::FormatTime("%m-%d %H:%M:%S", absl::Now(), absl::LocalTimeZone()),
                   " worker: ", line, "\n");
  std::cerr << text << std::flush;
}

std::string Advice(const absl::Status& status) {
  if (std::string carried = AdviceOf(status); !carried.empty()) return carried;
  switch (status.code()) {
    case absl::StatusCode::kUnauthenticated:
      return "Give controller and worker the same --cluster-secret-file.";
    case absl::StatusCode::kFailedPrecondition:
      return "Start controller and worker from the same build, with the same model and flags.";
    case absl::StatusCode::kUnavailable:
      return "Is the controller running, and is --controller its worker port?";
    case absl::StatusCode::kResourceExhausted:
      return "Use more ranks, a smaller model or a smaller cache, or free memory or workers.";
    case absl::StatusCode::kInvalidArgument:
      return "worker --help lists the flags.";
    case absl::StatusCode::kNotFound:
      return "Give this machine's copy of the model with --model.";
    default:
      return "The lines above say what happened before.";
  }
}

struct Machine {
  std::unique_ptr<Device> device;
  WorkerOptions options;
};

absl::StatusOr<Machine> Prepare() {
  ASSIGN_OR_RETURN(const DeviceChoice choice, ParseDevice(absl::GetFlag(FLAGS_device)));
  const std::string collectives = absl::GetFlag(FLAGS_collectives);
  if (collectives != "auto" && collectives != "gloo") {
    return absl::InvalidArgumentError(
        absl::StrCat("--collectives ", collectives, ": want auto or gloo"));
  }
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  const int threads =
      absl::GetFlag(FLAGS_threads) == 0 ? std::max(1, processors) : absl::GetFlag(FLAGS_threads);
  Machine machine;
  if (choice.type == DeviceType::kCuda) {
    ASSIGN_OR_RETURN(machine.device, CreateCudaDevice(choice.ordinal));
    ASSIGN_OR_RETURN(machine.options.memory_id, CudaBusId(choice.ordinal));
  } else {
    ASSIGN_OR_RETURN(machine.device, CpuDevice::Create(threads));
  }
  ASSIGN_OR_RETURN(const DeviceProperties properties, machine.device->Properties());
  ASSIGN_OR_RETURN(std::string secret, ClusterSecret(absl::GetFlag(FLAGS_cluster_secret_file)));
  machine.options = {
      .controller = absl::GetFlag(FLAGS_controller),
      .secret = std::move(secret),
      .build_version = std::string(kBuildVersion),
      .protocol_revision = ProtocolRevision(),
      .device_kind = choice.type == DeviceType::kCuda ? "cuda" : "cpu",
      .device_description = properties.name,
      .memory_id = std::move(machine.options.memory_id),
      .threads = threads,
      .model_dir = PathFromUser(absl::GetFlag(FLAGS_model)),
      .tensor_parallel_size = absl::GetFlag(FLAGS_tensor_parallel_size),
      .transport = collectives == "gloo" ? CollectiveTransport::kGloo : CollectiveTransport::kAuto,
      .connect_timeout = absl::Seconds(absl::GetFlag(FLAGS_connect_timeout))};
  return machine;
}

// Signals are taken by a thread of their own: the first one lets the worker leave, the second ends
// it.
void HandleSignals(const sigset_t& signals, Worker* worker) {
  std::thread([signals, worker] {
    int number = 0;
    sigwait(&signals, &number);
    Log("leaving the cluster; a second signal ends at once");
    worker->Stop();
    sigwait(&signals, &number);
    _exit(128 + number);
  }).detach();
}

[[noreturn]] void Fail(const std::string& who, const absl::Status& status) {
  std::array<char, 256> host = {};
  gethostname(host.data(), host.size() - 1);
  std::cerr << "worker: " << who << " on " << host.data() << ": " << status.message() << ". "
            << Advice(status) << std::endl;
  // What still computes is not waited for.
  _exit(1);
}

int Main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Computes one rank of a model for a controller.");
  ParseFlags(argc, argv, {{"tp", "tensor_parallel_size"}, {"tp_size", "tensor_parallel_size"}});
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // in every thread made from here on
  signal(SIGPIPE, SIG_IGN);
  absl::StatusOr<Machine> machine = Prepare();
  if (!machine.ok()) Fail("no rank yet", machine.status());
  Log(absl::StrCat("millrace ", std::string(kBuildVersion), " on ",
                   machine->options.device_description, ", pid ", getpid(),
                   "; flags: ", absl::StrJoin(NonDefaultFlags(), " ")));
  Log(absl::StrCat("dialling the controller at ", machine->options.controller));
  RunnerModelFactory factory;
  Worker worker(machine->options, *machine->device, factory, Log);
  HandleSignals(signals, &worker);
  const absl::Status status = worker.Run();
  if (!status.ok()) Fail(worker.Describe(), status);
  Log("done");
  // The thread that waits for signals knows the worker: no destructors.
  _exit(0);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
