#include "kernels/bench/bench_bed.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <thread>
#include <utility>

#include "kernels/core/check.h"
#include "kernels/core/status.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cuda/cuda_device.h"

namespace millrace {
namespace {

constexpr int64_t kWorkspaceBytes = int64_t{256} << 20;
constexpr double kCpuSeconds = 0.5;
// Copies of an operand together pass the L2 several times over, unless the operand is so small that
// the calls of one graph have a copy each.
constexpr int64_t kColdBytes = int64_t{256} << 20;
constexpr int64_t kMostCopies = 400;
constexpr int64_t kAlignment = 256;

// Noise of a dtype, about 8 MiB of it.
template <typename T, typename Fn>
std::vector<T> Noise(Fn convert) {
  std::vector<T> noise(((int64_t{8} << 20) + 4096) / sizeof(T));
  uint32_t state = 12345;
  for (T& value : noise) {
    state = state * 1664525u + 1013904223u;
    value = convert(static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
  }
  return noise;
}

template <typename T>
void Fill(Device& device, const Buffer& to, const std::vector<T>& noise) {
  const int64_t piece = static_cast<int64_t>(noise.size() * sizeof(T));
  for (int64_t at = 0; at < to.bytes(); at += piece) {
    MR_CHECK(device
                 .Copy(static_cast<char*>(to.data()) + at, noise.data(),
                       std::min(piece, to.bytes() - at), CopyKind::kHostToDevice, Stream{})
                 .ok());
  }
  MR_CHECK(device.Synchronize(Stream{}).ok());
}

}  // namespace

TensorView BenchOperand::At(int64_t i) const {
  TensorView view = first_;
  view.data = static_cast<char*>(buffer_.data()) + i % copies_ * (buffer_.bytes() / copies_);
  return view;
}

absl::StatusOr<std::unique_ptr<BenchBed>> BenchBed::OnCpu(int threads) {
  ASSIGN_OR_RETURN(std::unique_ptr<CpuDevice> device, CpuDevice::Create(threads));
  auto bed = std::unique_ptr<BenchBed>(new BenchBed());
  const CpuCeiling ceiling = MeasureCpuCeiling(*device->thread_pool(), *device);
  bed->device_ = std::move(device);
  bed->Finish();
  bed->table_.emplace(ceiling);
  return bed;
}

absl::StatusOr<std::unique_ptr<BenchBed>> BenchBed::OnCuda() {
  auto bed = std::unique_ptr<BenchBed>(new BenchBed());
  ASSIGN_OR_RETURN(bed->device_, CreateCudaDevice(0));
  ASSIGN_OR_RETURN(bed->cuda_, CudaBench::Create(*bed->device_));
  bed->stream_ = bed->cuda_->stream();
  bed->Finish();
  bed->table_.emplace(bed->cuda_->ceiling());
  return bed;
}

void BenchBed::Finish() {
  const auto properties = device_->Properties();
  MR_CHECK(properties.ok());
  std::fprintf(stdout, "%s\n", properties->name.c_str());
  workspace_buffer_ = Take(kWorkspaceBytes);
  workspace_ = Workspace(workspace_buffer_.data(), kWorkspaceBytes);
}

Buffer BenchBed::Take(int64_t bytes) {
  auto buffer = device_->Allocate(bytes);
  MR_CHECK(buffer.ok());
  return std::move(buffer).value();
}

BenchOperand BenchBed::Operand(DType dtype, std::initializer_list<int64_t> shape) {
  TensorView view = TensorView::Of(nullptr, dtype, shape, device_->type());
  const int64_t bytes =
      std::max<int64_t>(1, (view.size() * DTypeBytes(dtype) + kAlignment - 1) / kAlignment) *
      kAlignment;
  const int64_t copies =
      on_cuda() ? std::min((kColdBytes + bytes - 1) / bytes + 1, kMostCopies) : 1;
  Buffer buffer = Take(bytes * copies);
  if (dtype == DType::kF32) {
    Fill(*device_, buffer, Noise<float>([](float x) { return x; }));
  } else if (dtype == DType::kBF16) {
    Fill(*device_, buffer, Noise<BFloat16>([](float x) { return ToBFloat16(x); }));
  } else {
    MR_CHECK(dtype == DType::kU8);
    Fill(*device_, buffer,
         Noise<uint8_t>([](float x) { return static_cast<uint8_t>(128 + 127 * x); }));
  }
  return BenchOperand(std::move(buffer), view, copies);
}

BenchOperand BenchBed::Upload(const void* data, DType dtype, int64_t size) {
  const int64_t bytes = size * DTypeBytes(dtype);
  Buffer buffer = Take(bytes);
  MR_CHECK(device_->Copy(buffer.data(), data, bytes, CopyKind::kHostToDevice, Stream{}).ok());
  MR_CHECK(device_->Synchronize(Stream{}).ok());
  return BenchOperand(std::move(buffer), TensorView::Of(nullptr, dtype, {size}, device_->type()),
                      1);
}

BenchOperand BenchBed::Integers(DType dtype, const std::vector<int64_t>& values) {
  const auto size = static_cast<int64_t>(values.size());
  if (dtype == DType::kI64) return Upload(values.data(), dtype, size);
  MR_CHECK(dtype == DType::kI32);
  std::vector<int32_t> narrow;
  for (int64_t value : values) narrow.push_back(static_cast<int32_t>(value));
  return Upload(narrow.data(), dtype, size);
}

BenchOperand BenchBed::Floats(const std::vector<float>& values) {
  return Upload(values.data(), DType::kF32, static_cast<int64_t>(values.size()));
}

BenchTime BenchBed::Measure(absl::FunctionRef<void(int64_t)> run) {
  return on_cuda() ? cuda_->Measure(run) : MeasureRuns(kCpuSeconds, run);
}

BenchTime BenchBed::Row(const std::string& name, const BenchWork& work,
                        absl::FunctionRef<void(int64_t)> run) {
  const BenchTime time = Measure(run);
  table_->Row(name, work, time);
  return time;
}

int BenchMain(int argc, char** argv, absl::FunctionRef<void(BenchBed&)> bench) {
  constexpr std::string_view kThreads = "--threads=";
  bool cuda = CudaDeviceCount() > 0;
  int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--device=cpu" || arg == "--device=cuda") {
      cuda = arg == "--device=cuda";
    } else if (arg.substr(0, kThreads.size()) == kThreads &&
               std::from_chars(arg.data() + kThreads.size(), arg.data() + arg.size(), threads)
                       .ptr == arg.data() + arg.size()) {
      continue;
    } else {
      std::fprintf(stderr, "usage: %s [--device=cpu|cuda] [--threads=N]\n", argv[0]);
      return 2;
    }
  }
  const auto bed = cuda ? BenchBed::OnCuda() : BenchBed::OnCpu(threads);
  if (!bed.ok()) {
    std::fprintf(stderr, "%s\n", bed.status().ToString().c_str());
    return 1;
  }
  bench(**bed);
  return 0;
}

}  // namespace millrace
