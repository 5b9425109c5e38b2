// A device that calls itself CUDA and keeps its memory on the host, for tests of what happens
// around kernels: staging, events, graphs. Ops do not run on it.
#ifndef ENGINE_TESTING_FAKE_GPU_H_
#define ENGINE_TESTING_FAKE_GPU_H_

#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/device.h"

namespace millrace {

// One thread. Copies are done at once; inside a capture nothing is done.
class FakeGpu final : public Device {
 public:
  DeviceType type() const override { return DeviceType::kCuda; }
  absl::StatusOr<DeviceProperties> Properties() const override { return DeviceProperties{}; }
  absl::StatusOr<Buffer> Allocate(int64_t bytes) override {
    return Take(bytes, MemoryKind::kDevice);
  }
  absl::StatusOr<Buffer> AllocateHost(int64_t bytes) override {
    return Take(bytes, MemoryKind::kHost);
  }
  absl::StatusOr<Stream> CreateStream() override { return Stream{}; }
  void DestroyStream(Stream) override {}
  absl::Status Copy(void* dst, const void* src, int64_t bytes, CopyKind, Stream) override {
    ++copies;
    if (!capturing && bytes > 0) std::memcpy(dst, src, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  absl::Status Synchronize(Stream) override {
    if (!capturing) return absl::OkStatus();
    broken = true;
    return absl::InternalError("a wait inside a capture");
  }

  absl::Status Check() override { return health; }

  bool has_graphs() const override { return true; }
  absl::Status BeginCapture(Stream) override {
    capturing = true;
    broken = false;
    return absl::OkStatus();
  }
  absl::StatusOr<Graph> EndCapture(Stream) override {
    capturing = false;
    if (broken) return absl::InternalError("the capture is broken");
    return Graph(this, new int(++captured));
  }
  absl::Status Launch(const Graph& graph, Stream) override {
    launched = *static_cast<const int*>(graph.handle());
    return absl::OkStatus();
  }

  absl::Status health;
  int copies = 0;
  bool capturing = false;
  bool broken = false;
  int captured = 0;  // graphs so far
  int launched = 0;  // which graph was launched last, from 1 in the order of capture

 private:
  absl::StatusOr<Buffer> Take(int64_t bytes, MemoryKind kind) {
    return Buffer(this, new char[static_cast<size_t>(bytes)](), bytes, kind);
  }
  void Free(void* data, MemoryKind) override { delete[] static_cast<char*>(data); }
  void DestroyGraph(void* handle) override { delete static_cast<int*>(handle); }
};

}  // namespace millrace

#endif  // ENGINE_TESTING_FAKE_GPU_H_
