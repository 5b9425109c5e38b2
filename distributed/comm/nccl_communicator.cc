#include "distributed/comm/nccl_communicator.h"

#include <cuda_runtime_api.h>

#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/core/dtype.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"

namespace millrace {
namespace {

// A call that only hands over work is through in some ten microseconds: looked for without sleep.
constexpr absl::Duration kEager = absl::Microseconds(200);
constexpr std::chrono::microseconds kPoll(100);
// How long a destructor waits for NCCL to free its memory.
constexpr absl::Duration kFreeTimeout = absl::Seconds(10);

absl::Status CheckTensor(const char* operation, const char* name, const TensorView& x) {
  if (x.device != DeviceType::kCuda || !x.contiguous()) {
    return absl::InvalidArgumentError(
        absl::StrCat(operation, ": ", name, " must be contiguous and on cuda: ", x.ToString()));
  }
  return absl::OkStatus();
}

}  // namespace

NcclCommunicator::NcclCommunicator(const NcclLibrary& nccl, ncclComm_t comm, int32_t rank,
                                   int32_t size, int ordinal)
    : nccl_(nccl), rank_(rank), size_(size), ordinal_(ordinal), comm_(comm) {}

NcclCommunicator::~NcclCommunicator() {
  std::shared_ptr<absl::Notification> freed;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    (void)Kill(absl::UnavailableError("the communicator has ended"));
    freed = freed_;
  }
  (void)freed->WaitForNotificationWithTimeout(kFreeTimeout);
}

absl::Status NcclCommunicator::Ready(absl::Time deadline, absl::Duration timeout, Device& device) {
  timeout_ = timeout;
  {
    std::unique_lock<std::mutex> lock(mu_);
    ncclResult_t state = ncclInProgress;
    const ncclResult_t asked = nccl_.get_async_error(comm_, &state);
    RETURN_IF_ERROR(
        Settle(lock, "ncclCommInitRankConfig", asked == ncclSuccess ? state : asked, deadline));
  }
  ASSIGN_OR_RETURN(barrier_word_, device.Allocate(sizeof(float)));
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Kill(absl::Status why) {
  if (!dead_.ok()) return dead_;
  dead_ = std::move(why);
  // ncclCommAbort ends what runs at once, but returns only when the graphs that hold collectives
  // are gone; whoever aborts, the thread that will destroy them among others, must not wait.
  freed_ = std::make_shared<absl::Notification>();
  std::thread([give_up = nccl_.comm_abort, comm = comm_, ordinal = ordinal_, freed = freed_] {
    (void)cudaSetDevice(ordinal);  // else a context on GPU 0 is made
    (void)give_up(comm);
    freed->Notify();
  }).detach();
  return dead_;
}

void NcclCommunicator::Abort() {
  const std::lock_guard<std::mutex> lock(mu_);
  (void)Kill(absl::UnavailableError("aborted"));
}

absl::Status NcclCommunicator::Settle(std::unique_lock<std::mutex>& lock, const char* operation,
                                      ncclResult_t result, absl::Time deadline) {
  const absl::Time eager_until = absl::Now() + kEager;
  while (result == ncclInProgress) {
    const absl::Time now = absl::Now();
    if (now > deadline) {
      return Kill(absl::DeadlineExceededError(
          absl::StrCat(operation, ": another rank did not take part in time")));
    }
    lock.unlock();
    if (now < eager_until) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPoll);
    }
    lock.lock();
    if (!dead_.ok())
      return absl::Status(dead_.code(), absl::StrCat(operation, ": ", dead_.message()));
    const ncclResult_t asked = nccl_.get_async_error(comm_, &result);
    if (asked != ncclSuccess) result = asked;
  }
  if (result == ncclSuccess) return absl::OkStatus();
  return Kill(nccl_.StatusOf(result, operation, comm_));
}

absl::Status NcclCommunicator::Enqueue(const char* operation,
                                       absl::FunctionRef<ncclResult_t()> call) {
  std::unique_lock<std::mutex> lock(mu_);
  if (!dead_.ok())
    return absl::Status(dead_.code(), absl::StrCat(operation, ": ", dead_.message()));
  // What befell an earlier collective after it was enqueued.
  ncclResult_t result = ncclSuccess;
  const ncclResult_t asked = nccl_.get_async_error(comm_, &result);
  if (asked != ncclSuccess) result = asked;
  if (result == ncclSuccess) result = call();
  return Settle(lock, operation, result, absl::Now() + timeout_);
}

absl::Status NcclCommunicator::AllReduceSum(const TensorView& x, Stream stream) {
  RETURN_IF_ERROR(CheckTensor("AllReduceSum", "x", x));
  if (x.dtype != DType::kF32 && x.dtype != DType::kBF16) {
    return absl::InvalidArgumentError(
        absl::StrCat("AllReduceSum: x must be float32 or bfloat16: ", x.ToString()));
  }
  const ncclDataType_t type = x.dtype == DType::kF32 ? ncclFloat32 : ncclBfloat16;
  return Enqueue("AllReduceSum", [&] {
    return nccl_.all_reduce(x.data, x.data, static_cast<size_t>(x.size()), type, ncclSum, comm_,
                            ToCuda(stream));
  });
}

absl::Status NcclCommunicator::AllGather(const TensorView& in, const int64_t* counts,
                                         const TensorView& out, Stream stream) {
  RETURN_IF_ERROR(CheckTensor("AllGather", "in", in));
  RETURN_IF_ERROR(CheckTensor("AllGather", "out", out));
  int64_t total = 0;
  bool equal = true;
  for (int32_t r = 0; r < size_; ++r) {
    total += counts[r];
    equal = equal && counts[r] == counts[0];
  }
  if (in.dtype != out.dtype || in.size() != counts[rank_] || out.size() != total) {
    return absl::InvalidArgumentError(absl::StrCat("AllGather: in ", in.ToString(), ", out ",
                                                   out.ToString(), ", want ", counts[rank_],
                                                   " elements in and ", total, " out"));
  }
  const int64_t width = DTypeBytes(in.dtype);
  return Enqueue("AllGather", [&] {
    if (equal) {
      return nccl_.all_gather(in.data, out.data, static_cast<size_t>(in.size() * width), ncclUint8,
                              comm_, ToCuda(stream));
    }
    ncclResult_t result = nccl_.group_start();
    if (result != ncclSuccess) return result;
    std::byte* part = out.as<std::byte>();
    for (int32_t r = 0; r < size_; ++r) {
      const size_t bytes = static_cast<size_t>(counts[r] * width);
      const void* from = r == rank_ ? in.data : part;
      if (bytes > 0 && (result == ncclSuccess || result == ncclInProgress)) {
        result = nccl_.broadcast(from, part, bytes, ncclUint8, r, comm_, ToCuda(stream));
      }
      part += bytes;
    }
    const ncclResult_t ended = nccl_.group_end();  // also after an error: it closes the group
    return result == ncclSuccess || result == ncclInProgress ? ended : result;
  });
}

absl::Status NcclCommunicator::AllToAll(const TensorView& in, const int64_t* send,
                                        const TensorView& out, const int64_t* receive,
                                        Stream stream) {
  RETURN_IF_ERROR(CheckTensor("AllToAll", "in", in));
  RETURN_IF_ERROR(CheckTensor("AllToAll", "out", out));
  const int64_t to_send = std::accumulate(send, send + size_, int64_t{0});
  const int64_t to_receive = std::accumulate(receive, receive + size_, int64_t{0});
  if (in.dtype != out.dtype || in.size() != to_send || out.size() != to_receive) {
    return absl::InvalidArgumentError(absl::StrCat("AllToAll: in ", in.ToString(), ", out ",
                                                   out.ToString(), ", want ", to_send,
                                                   " elements in and ", to_receive, " out"));
  }
  const int64_t width = DTypeBytes(in.dtype);
  return Enqueue("AllToAll", [&] {
    ncclResult_t result = nccl_.group_start();
    if (result != ncclSuccess) return result;
    const auto going = [&] { return result == ncclSuccess || result == ncclInProgress; };
    const std::byte* from = in.as<std::byte>();
    std::byte* to = out.as<std::byte>();
    for (int32_t r = 0; r < size_; ++r) {
      const size_t sent = static_cast<size_t>(send[r] * width);
      const size_t received = static_cast<size_t>(receive[r] * width);
      if (sent > 0 && going()) result = nccl_.send(from, sent, ncclUint8, r, comm_, ToCuda(stream));
      if (received > 0 && going()) {
        result = nccl_.receive(to, received, ncclUint8, r, comm_, ToCuda(stream));
      }
      from += sent;
      to += received;
    }
    const ncclResult_t ended = nccl_.group_end();  // also after an error: it closes the group
    return going() ? ended : result;
  });
}

absl::Status NcclCommunicator::Broadcast(const TensorView& x, int32_t root, Stream stream) {
  RETURN_IF_ERROR(CheckTensor("Broadcast", "x", x));
  if (root < 0 || root >= size_) {
    return absl::InvalidArgumentError(
        absl::StrCat("Broadcast: root = ", root, ", want a rank below ", size_));
  }
  const int64_t bytes = x.size() * DTypeBytes(x.dtype);
  return Enqueue("Broadcast", [&] {
    return nccl_.broadcast(x.data, x.data, static_cast<size_t>(bytes), ncclUint8, root, comm_,
                           ToCuda(stream));
  });
}

absl::Status NcclCommunicator::Barrier(Stream stream) {
  return Enqueue("Barrier", [&] {
    return nccl_.all_reduce(barrier_word_.data(), barrier_word_.data(), 1, ncclFloat32, ncclSum,
                            comm_, ToCuda(stream));
  });
}

}  // namespace millrace
