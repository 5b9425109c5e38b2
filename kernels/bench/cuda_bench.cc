#include "kernels/bench/cuda_bench.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/bench/cuda_bench_kernel.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"

namespace millrace {
namespace {

constexpr int64_t kBytes = int64_t{1} << 30;  // far more than any L2
constexpr int kReplays = 11;
// A graph of about this length: long beside the start of the first kernel, short in all.
constexpr double kGraphSeconds = 2e-3;
constexpr int64_t kFewestCalls = 8;
constexpr int64_t kMostCalls = 400;

void Must(cudaError_t error) { MR_CHECK_EQ(error, cudaSuccess); }

BenchTime Summary(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {.min_seconds = times.front(), .median_seconds = times[times.size() / 2]};
}

class GraphBench final : public CudaBench {
 public:
  GraphBench(Device& device, Stream stream, Buffer from, Buffer to)
      : device_(device), stream_(stream), from_(std::move(from)), to_(std::move(to)) {
    Must(cudaEventCreate(&begin_));
    Must(cudaEventCreate(&end_));
    MeasureCeiling();
  }

  ~GraphBench() override {
    (void)cudaEventDestroy(begin_);
    (void)cudaEventDestroy(end_);
    device_.DestroyStream(stream_);
  }

  Stream stream() const override { return stream_; }
  const CudaCeiling& ceiling() const override { return ceiling_; }

  BenchTime Measure(absl::FunctionRef<void(int64_t)> run) override {
    run(0);  // loads the kernels
    const double once = Time([&] { run(1); });
    const int64_t calls =
        std::clamp(static_cast<int64_t>(kGraphSeconds / once), kFewestCalls, kMostCalls);
    const cudaGraphExec_t graph = Capture(calls, run);
    std::vector<double> times;
    for (int i = 0; i < kReplays; ++i) {
      Read();  // the graph is on its way before this ends
      times.push_back(Time([&] { Must(cudaGraphLaunch(graph, stream())); }) /
                      static_cast<double>(calls));
    }
    Must(cudaGraphExecDestroy(graph));
    return Summary(std::move(times));
  }

 private:
  cudaStream_t stream() { return ToCuda(stream_); }

  void Read() {
    Must(LaunchReadAll(from_.data(), kBytes, static_cast<uint32_t*>(to_.data()), stream()));
  }

  double Time(absl::FunctionRef<void()> enqueue) {
    Must(cudaEventRecord(begin_, stream()));
    enqueue();
    Must(cudaEventRecord(end_, stream()));
    Must(cudaEventSynchronize(end_));
    float milliseconds = 0;
    Must(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return milliseconds * 1e-3;
  }

  cudaGraphExec_t Capture(int64_t calls, absl::FunctionRef<void(int64_t)> run) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    Must(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal));
    for (int64_t i = 0; i < calls; ++i) run(i);
    Must(cudaStreamEndCapture(stream(), &graph));
    Must(cudaGraphInstantiate(&exec, graph, 0));
    Must(cudaGraphDestroy(graph));
    Must(cudaGraphUpload(exec, stream()));
    Must(cudaGraphLaunch(exec, stream()));
    Must(cudaStreamSynchronize(stream()));
    return exec;
  }

  // Not in a graph: a copy there runs on a copy engine, at two thirds of what a kernel reaches.
  void MeasureCeiling() {
    std::vector<double> copies, reads;
    for (int i = 0; i < kReplays; ++i) {
      copies.push_back(Time([&] {
        Must(cudaMemcpyAsync(to_.data(), from_.data(), kBytes, cudaMemcpyDeviceToDevice, stream()));
      }));
      reads.push_back(Time([&] { Read(); }));
    }
    ceiling_ = {.copy_bytes_per_second = 2 * kBytes / Summary(copies).median_seconds,
                .read_bytes_per_second = kBytes / Summary(reads).median_seconds};
  }

  Device& device_;
  const Stream stream_;
  const Buffer from_, to_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  CudaCeiling ceiling_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaBench>> CudaBench::Create(Device& device) {
  ASSIGN_OR_RETURN(const Stream stream, device.CreateStream());
  ASSIGN_OR_RETURN(Buffer from, device.Allocate(kBytes));
  ASSIGN_OR_RETURN(Buffer to, device.Allocate(kBytes));
  // Not zeros: equal bits cost the memory less power.
  std::vector<uint32_t> noise(1 << 20);
  uint32_t state = 1;
  for (uint32_t& word : noise) word = state = state * 1664525u + 1013904223u;
  for (int64_t at = 0; at < kBytes; at += static_cast<int64_t>(noise.size()) * 4) {
    RETURN_IF_ERROR(device.Copy(static_cast<char*>(from.data()) + at, noise.data(),
                                static_cast<int64_t>(noise.size()) * 4, CopyKind::kHostToDevice,
                                stream));
  }
  RETURN_IF_ERROR(device.Synchronize(stream));
  return std::make_unique<GraphBench>(device, stream, std::move(from), std::move(to));
}

}  // namespace millrace
