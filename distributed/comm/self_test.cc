#include "distributed/comm/self_test.h"

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/all_reduce/all_reduce.h"
#include "kernels/core/dtype.h"
#include "kernels/core/op_context.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr int64_t kElements = 1031;  // no multiple of anything

// Small integers: exact in float32 however they are summed.
float Number(int32_t rank, int64_t i) { return static_cast<float>((rank + 1) * (1 + i % 13)); }

class SelfTest final {
 public:
  SelfTest(Communicator& communicator, Device& device) : comm_(communicator), device_(device) {}

  absl::Status AllReduce() {
    std::vector<float> host;
    for (int64_t i = 0; i < kElements; ++i) host.push_back(Number(comm_.rank(), i));
    return OnDevice(
        "AllReduceSum", host, [&](const TensorView& x) { return comm_.AllReduceSum(x, Stream{}); },
        [&](int64_t i) { return Sum(i); });
  }

  absl::Status Broadcast() {
    const int32_t root = comm_.size() - 1;
    std::vector<float> host;
    for (int64_t i = 0; i < kElements; ++i) host.push_back(Number(comm_.rank(), i));
    return OnDevice(
        "Broadcast", host, [&](const TensorView& x) { return comm_.Broadcast(x, root, Stream{}); },
        [&](int64_t i) { return Number(root, i); });
  }

  // Over peer memory, for groups that have it: a row of 256 whose residual becomes the sum.
  absl::Status PeerSum() {
    const AllReducePeers* peers = comm_.peers();
    constexpr int64_t kWidth = 256;
    if (peers == nullptr || !AllReduceRmsNormCovers(*peers, 1, kWidth)) return absl::OkStatus();
    std::vector<BFloat16> host(3 * kWidth);  // x, residual and weight, y
    for (int64_t i = 0; i < kWidth; ++i) host[i] = ToBFloat16(Number(comm_.rank(), i));
    const int64_t bytes = static_cast<int64_t>(host.size() * sizeof(BFloat16));
    ASSIGN_OR_RETURN(const Buffer buffer, device_.Allocate(bytes));
    RETURN_IF_ERROR(device_.Copy(buffer.data(), host.data(), bytes, CopyKind::kHostToDevice, {}));
    const TensorView rows =
        TensorView::Of(buffer.data(), DType::kBF16, {3, kWidth}, device_.type());
    Workspace none;
    TensorView weight = rows.Rows(2, 3);
    weight.rank = 1;
    weight.dims = {kWidth};
    weight.strides = {1};
    RETURN_IF_ERROR(AllReduceRmsNorm({device_, Stream{}, none}, {.peers = *peers,
                                                                 .x = rows.Rows(0, 1),
                                                                 .residual = rows.Rows(1, 2),
                                                                 .weight = weight,
                                                                 .y = rows.Rows(0, 1),
                                                                 .eps = 1e-5f}));
    RETURN_IF_ERROR(device_.Copy(host.data(), buffer.data(), bytes, CopyKind::kDeviceToHost, {}));
    RETURN_IF_ERROR(device_.Synchronize({}));
    for (int64_t i = 0; i < kWidth; ++i) {
      RETURN_IF_ERROR(Expect("AllReduceRmsNorm", i, ToFloat(host[kWidth + i]), Sum(i)));
    }
    return absl::OkStatus();
  }

  // Rank r brings r + 1 numbers.
  absl::Status AllGather() {
    std::vector<int64_t> counts;
    int64_t begin = 0;
    int64_t total = 0;
    for (int32_t r = 0; r < comm_.size(); ++r) {
      counts.push_back(r + 1);
      if (r < comm_.rank()) begin += r + 1;
      total += r + 1;
    }
    const int64_t mine = comm_.rank() + 1;
    std::vector<float> host(static_cast<size_t>(total), -1.0f);
    for (int64_t i = 0; i < mine; ++i) {
      host[static_cast<size_t>(begin + i)] = Number(comm_.rank(), i);
    }
    return OnDevice(
        "AllGather", host,
        [&](const TensorView& x) -> absl::Status {
          ASSIGN_OR_RETURN(const Buffer part, device_.Allocate(mine * DTypeBytes(x.dtype)));
          RETURN_IF_ERROR(device_.Copy(part.data(), x.Rows(begin, begin + mine).data, part.bytes(),
                                       CopyKind::kDeviceToDevice, Stream{}));
          const TensorView in = TensorView::Of(part.data(), x.dtype, {mine}, x.device);
          return comm_.AllGather(in, counts.data(), x, Stream{});
        },
        [&](int64_t i) {
          int32_t r = 0;
          for (; i >= counts[static_cast<size_t>(r)]; ++r) i -= counts[static_cast<size_t>(r)];
          return Number(r, i);
        });
  }

  // Rank r sends r + i + 1 numbers to rank i, which sends as many back.
  absl::Status AllToAll() {
    std::vector<int64_t> counts;
    std::vector<float> host;
    for (int32_t r = 0; r < comm_.size(); ++r) {
      counts.push_back(comm_.rank() + r + 1);
      for (int64_t i = 0; i < counts.back(); ++i) host.push_back(Number(comm_.rank(), r + i));
    }
    return OnDevice(
        "AllToAll", host,
        [&](const TensorView& x) -> absl::Status {
          ASSIGN_OR_RETURN(const Buffer sent, device_.Allocate(x.size() * DTypeBytes(x.dtype)));
          RETURN_IF_ERROR(
              device_.Copy(sent.data(), x.data, sent.bytes(), CopyKind::kDeviceToDevice, Stream{}));
          const TensorView in = TensorView::Of(sent.data(), x.dtype, {x.size()}, x.device);
          RETURN_IF_ERROR(comm_.AllToAll(in, counts.data(), x, counts.data(), Stream{}));
          return device_.Synchronize({});  // `sent` goes
        },
        [&](int64_t i) {
          int32_t r = 0;
          for (; i >= counts[static_cast<size_t>(r)]; ++r) i -= counts[static_cast<size_t>(r)];
          return Number(r, comm_.rank() + i);
        });
  }

 private:
  // Of all ranks' numbers.
  float Sum(int64_t i) const {
    float sum = 0;
    for (int32_t r = 0; r < comm_.size(); ++r) sum += Number(r, i);
    return sum;
  }

  absl::Status Expect(const char* operation, int64_t i, float got, float want) const {
    if (got == want) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("collective self-test: ", operation, ": rank ",
                                            comm_.rank(), " of ", comm_.size(), ": element ", i,
                                            " = ", got, ", want ", want));
  }

  absl::Status OnDevice(const char* operation, std::vector<float> host,
                        const std::function<absl::Status(const TensorView&)>& run,
                        const std::function<float(int64_t)>& want) {
    const int64_t bytes = static_cast<int64_t>(host.size() * sizeof(float));
    ASSIGN_OR_RETURN(const Buffer buffer, device_.Allocate(bytes));
    RETURN_IF_ERROR(device_.Copy(buffer.data(), host.data(), bytes, CopyKind::kHostToDevice, {}));
    RETURN_IF_ERROR(run(TensorView::Of(buffer.data(), DType::kF32,
                                       {static_cast<int64_t>(host.size())}, device_.type())));
    RETURN_IF_ERROR(device_.Copy(host.data(), buffer.data(), bytes, CopyKind::kDeviceToHost, {}));
    RETURN_IF_ERROR(device_.Synchronize({}));
    for (int64_t i = 0; i < static_cast<int64_t>(host.size()); ++i) {
      RETURN_IF_ERROR(Expect(operation, i, host[static_cast<size_t>(i)], want(i)));
    }
    return absl::OkStatus();
  }

  Communicator& comm_;
  Device& device_;
};

}  // namespace

absl::Status CollectiveSelfTest(Communicator& communicator, Device& device) {
  SelfTest test(communicator, device);
  RETURN_IF_ERROR(communicator.Barrier({}));
  RETURN_IF_ERROR(test.AllReduce());
  RETURN_IF_ERROR(test.AllGather());
  RETURN_IF_ERROR(test.AllToAll());
  RETURN_IF_ERROR(test.PeerSum());
  return test.Broadcast();
}

}  // namespace millrace
