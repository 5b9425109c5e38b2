#include "kernels/core/device.h"

#include <utility>

#include "absl/status/status.h"

namespace millrace {

Buffer::~Buffer() {
  if (data_ != nullptr) device_->Free(data_, kind_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      kind_(other.kind_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(kind_, other.kind_);
  return *this;
}

Event::~Event() {
  if (handle_ != nullptr) device_->DestroyEvent(handle_);
}

Event::Event(Event&& other) noexcept
    : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  return *this;
}

Graph::~Graph() {
  if (handle_ != nullptr) device_->DestroyGraph(handle_);
}

Graph::Graph(Graph&& other) noexcept
    : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  return *this;
}

absl::Status Device::BeginCapture(Stream) {
  return absl::UnimplementedError("this device has no graphs");
}

absl::StatusOr<Graph> Device::EndCapture(Stream) {
  return absl::UnimplementedError("this device has no graphs");
}

absl::Status Device::Launch(const Graph&, Stream) {
  return absl::UnimplementedError("this device has no graphs");
}

}  // namespace millrace
