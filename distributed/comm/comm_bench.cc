// Time of collectives between two processes of this machine, and of gloo's own ring for comparison.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "distributed/comm/connect.h"
#include "distributed/comm/directory_store.h"

namespace millrace {
namespace {

constexpr int64_t kSizes[] = {576, 4096, 65536, 294912};
constexpr int kRepeats = 2000;

// Prints median and 95th percentile of `once`, in microseconds, on rank 0. `pause` is work between
// the calls that both ranks do.
void Measure(int rank, const std::string& name, int64_t n, absl::Duration pause,
             const std::function<bool()>& once) {
  std::vector<double> micros;
  const int repeats = n > 10000 ? kRepeats / 10 : kRepeats;
  for (int i = 0; i < repeats + 50; ++i) {
    const absl::Time until = absl::Now() + pause;
    while (absl::Now() < until) {
    }
    const absl::Time begin = absl::Now();
    if (!once()) {
      std::cerr << name << ": failed\n";
      _exit(1);
    }
    if (i >= 50) micros.push_back(absl::ToDoubleMicroseconds(absl::Now() - begin));
  }
  std::sort(micros.begin(), micros.end());
  if (rank == 0) {
    std::cout << absl::StrFormat("%-22s %7d float32 %9.1f us median %9.1f us p95\n", name, n,
                                 micros[micros.size() / 2], micros[micros.size() * 95 / 100])
              << std::flush;
  }
}

void MeasureOurs(int rank, const std::string& folder, CollectiveTransport transport,
                 const std::string& name) {
  DirectoryStore store(folder);
  auto c = ConnectGroup({.rank = rank, .size = 2, .transport = transport}, store);
  if (!c.ok()) {
    std::cerr << c.status() << "\n";
    _exit(1);
  }
  for (const int64_t n : kSizes) {
    std::vector<float> x(static_cast<size_t>(n));
    Measure(rank, name, n, absl::Microseconds(100), [&] {
      return (*c)->AllReduceSum(TensorView::Of(x.data(), DType::kF32, {n}), {}).ok();
    });
  }
  if (!(*c)->Barrier({}).ok()) _exit(1);
  absl::SleepFor(absl::Milliseconds(100));
}

void MeasureRing(int rank, const std::string& folder) {
  gloo::rendezvous::FileStore store(folder);
  std::shared_ptr<gloo::transport::Device> device =
      gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, 2);
  context->connectFullMesh(store, device);
  for (const int64_t n : kSizes) {
    std::vector<float> x(static_cast<size_t>(n));
    Measure(rank, "gloo's ring", n, absl::Microseconds(100), [&] {
      gloo::AllreduceOptions options(context);
      options.setOutput(x.data(), x.size());
      options.setReduceFunction(
          static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
      gloo::allreduce(options);
      return true;
    });
  }
  absl::SleepFor(absl::Milliseconds(100));
}

int Main() {
  for (const char* what : {"shared", "gloo", "ring"}) {
    std::string folder = "/tmp/comm_benchXXXXXX";
    if (mkdtemp(folder.data()) == nullptr) return 1;
    const std::string name = what;
    const pid_t child = fork();
    const int rank = child == 0 ? 1 : 0;
    if (name == "shared") {
      MeasureOurs(rank, folder, CollectiveTransport::kAuto, "shared memory");
    } else if (name == "gloo") {
      MeasureOurs(rank, folder, CollectiveTransport::kGloo, "gloo pairs, one round");
    } else {
      MeasureRing(rank, folder);
    }
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
  }
  return 0;
}

}  // namespace
}  // namespace millrace

int main() { return millrace::Main(); }
