#include "kernels/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_device_impl.h"
#include "kernels/cuda/cuda_status.h"

namespace millrace {
namespace {

cudaEvent_t ToCuda(const Event& event) { return static_cast<cudaEvent_t>(event.handle()); }

absl::Status AllocationError(cudaError_t error, const char* what, int64_t bytes) {
  (void)cudaGetLastError();  // a failed allocation is not sticky: forget it
  size_t free = 0;
  size_t total = 0;
  (void)cudaMemGetInfo(&free, &total);
  return CudaStatus(
      error, absl::StrCat(what, " of ", bytes, " bytes, ", free, " of ", total, " are free"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CudaDevice::Create(int ordinal) {
  std::unique_ptr<CudaDevice> device(new CudaDevice(ordinal));
  ASSIGN_OR_RETURN(const DeviceProperties properties, device->Properties());
  device->multiprocessors_ = properties.multiprocessors;
  device->compute_capability_ = properties.compute_capability;
  ASSIGN_OR_RETURN(device->cublas_, CublasLt::Create());
  return std::unique_ptr<Device>(std::move(device));
}

absl::Status CudaDevice::MakeCurrent() const {
  return CudaStatus(cudaSetDevice(ordinal_), "cudaSetDevice");
}

absl::StatusOr<DeviceProperties> CudaDevice::Properties() const {
  RETURN_IF_ERROR(MakeCurrent());
  cudaDeviceProp prop = {};
  RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&prop, ordinal_), "cudaGetDeviceProperties"));
  size_t free = 0;
  size_t total = 0;
  RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  return DeviceProperties{.name = prop.name,
                          .total_bytes = static_cast<int64_t>(total),
                          .free_bytes = static_cast<int64_t>(free),
                          .multiprocessors = prop.multiProcessorCount,
                          .compute_capability = prop.major * 10 + prop.minor};
}

absl::StatusOr<Buffer> CudaDevice::Allocate(int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError("CudaDevice: negative size");
  if (bytes == 0) return Buffer();
  RETURN_IF_ERROR(MakeCurrent());
  void* data = nullptr;
  const size_t size = static_cast<size_t>(bytes);
  const cudaError_t error = cudaMalloc(&data, size);
  if (error != cudaSuccess) return AllocationError(error, "cudaMalloc", bytes);
  Buffer buffer(this, data, bytes);
  RETURN_IF_ERROR(CudaStatus(cudaMemset(data, 0, size), "cudaMemset"));
  // cudaMemset does not wait, and our streams do not wait for the default one.
  RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"));
  return buffer;
}

absl::StatusOr<Buffer> CudaDevice::AllocateHost(int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError("CudaDevice: negative size");
  if (bytes == 0) return Buffer();
  RETURN_IF_ERROR(MakeCurrent());
  void* data = nullptr;
  const cudaError_t error = cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocDefault);
  if (error != cudaSuccess) return AllocationError(error, "cudaHostAlloc", bytes);
  std::memset(data, 0, static_cast<size_t>(bytes));
  return Buffer(this, data, bytes, MemoryKind::kHost);
}

// A failed free is the echo of an earlier error; nothing can be done about it here.
void CudaDevice::Free(void* data, MemoryKind kind) {
  (void)(kind == MemoryKind::kHost ? cudaFreeHost(data) : cudaFree(data));
}

absl::StatusOr<Stream> CudaDevice::CreateStream() {
  RETURN_IF_ERROR(MakeCurrent());
  cudaStream_t stream = nullptr;
  RETURN_IF_ERROR(
      CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate"));
  return Stream{stream};
}

// The stream's work is done or lost; nothing can be done about an error here.
void CudaDevice::DestroyStream(Stream stream) { (void)cudaStreamDestroy(ToCuda(stream)); }

absl::Status CudaDevice::Copy(void* dst, const void* src, int64_t bytes, CopyKind kind,
                              Stream stream) {
  if (bytes < 0) return absl::InvalidArgumentError("CudaDevice: copy of negative size");
  RETURN_IF_ERROR(MakeCurrent());
  const cudaMemcpyKind kinds[] = {cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost,
                                  cudaMemcpyDeviceToDevice};
  return CudaStatus(cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes),
                                    kinds[static_cast<int>(kind)], ToCuda(stream)),
                    "cudaMemcpyAsync");
}

absl::Status CudaDevice::Synchronize(Stream stream) {
  RETURN_IF_ERROR(MakeCurrent());
  return CudaStatus(cudaStreamSynchronize(ToCuda(stream)), "cudaStreamSynchronize");
}

absl::Status CudaDevice::Check() {
  (void)cudaGetLastError();  // what is not sticky is forgotten
  RETURN_IF_ERROR(MakeCurrent());
  return CudaStatus(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

absl::StatusOr<Event> CudaDevice::CreateEvent() {
  RETURN_IF_ERROR(MakeCurrent());
  cudaEvent_t event = nullptr;
  RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                             "cudaEventCreateWithFlags"));
  return Event(this, event);
}

void CudaDevice::DestroyEvent(void* handle) {
  (void)cudaEventDestroy(static_cast<cudaEvent_t>(handle));
}

absl::Status CudaDevice::Record(const Event& event, Stream stream) {
  RETURN_IF_ERROR(MakeCurrent());
  return CudaStatus(cudaEventRecord(ToCuda(event), ToCuda(stream)), "cudaEventRecord");
}

absl::Status CudaDevice::Wait(const Event& event) {
  RETURN_IF_ERROR(MakeCurrent());
  return CudaStatus(cudaEventSynchronize(ToCuda(event)), "cudaEventSynchronize");
}

absl::StatusOr<bool> CudaDevice::IsDone(const Event& event) {
  RETURN_IF_ERROR(MakeCurrent());
  const cudaError_t error = cudaEventQuery(ToCuda(event));
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  RETURN_IF_ERROR(CudaStatus(error, "cudaEventQuery"));
  return true;
}

absl::Status CudaDevice::StreamWait(Stream stream, const Event& event) {
  RETURN_IF_ERROR(MakeCurrent());
  return CudaStatus(cudaStreamWaitEvent(ToCuda(stream), ToCuda(event), 0), "cudaStreamWaitEvent");
}

absl::Status CudaDevice::BeginCapture(Stream stream) {
  RETURN_IF_ERROR(MakeCurrent());
  return CudaStatus(cudaStreamBeginCapture(ToCuda(stream), cudaStreamCaptureModeThreadLocal),
                    "cudaStreamBeginCapture");
}

absl::StatusOr<Graph> CudaDevice::EndCapture(Stream stream) {
  RETURN_IF_ERROR(MakeCurrent());
  cudaGraph_t captured = nullptr;
  const cudaError_t error = cudaStreamEndCapture(ToCuda(stream), &captured);
  if (error != cudaSuccess) (void)cudaGetLastError();  // a broken capture is not sticky
  RETURN_IF_ERROR(CudaStatus(error, "cudaStreamEndCapture"));
  cudaGraphExec_t executable = nullptr;
  const absl::Status status =
      CudaStatus(cudaGraphInstantiate(&executable, captured, 0), "cudaGraphInstantiate");
  (void)cudaGraphDestroy(captured);
  RETURN_IF_ERROR(status);
  return Graph(this, executable);
}

void CudaDevice::DestroyGraph(void* handle) {
  (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle));
}

absl::Status CudaDevice::Launch(const Graph& graph, Stream stream) {
  RETURN_IF_ERROR(MakeCurrent());
  return CudaStatus(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph.handle()), ToCuda(stream)),
                    "cudaGraphLaunch");
}

int CudaDeviceCount() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();  // no driver, or no GPU: not an error for the caller
    return 0;
  }
  return count;
}

namespace {

absl::Status CheckOrdinal(int ordinal) {
  const int count = CudaDeviceCount();
  if (ordinal >= 0 && ordinal < count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("there is no GPU ", ordinal, ": this machine has ", count));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(int ordinal) {
  RETURN_IF_ERROR(CheckOrdinal(ordinal));
  return CudaDevice::Create(ordinal);
}

absl::StatusOr<std::string> CudaBusId(int ordinal) {
  RETURN_IF_ERROR(CheckOrdinal(ordinal));
  char id[32] = {};
  RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetPCIBusId(id, sizeof(id), ordinal), "cudaDeviceGetPCIBusId"));
  return std::string(id);
}

}  // namespace millrace
