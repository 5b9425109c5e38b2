#include "absl/strings/str_cat.h"
#include "engine/parallel/communicator.h"

namespace millrace {

absl::Status SingleRank::AllReduceSum(const TensorView&, Stream) { return absl::OkStatus(); }

absl::Status SingleRank::AllGather(const TensorView& in, const int64_t* counts,
                                   const TensorView& out, Stream stream) {
  if (in.dtype != out.dtype || in.size() != counts[0] || out.size() != counts[0]) {
    return absl::InvalidArgumentError(absl::StrCat("AllGather: in ", in.ToString(), ", out ",
                                                   out.ToString(), ", counts[0] = ", counts[0]));
  }
  if (in.data == out.data) return absl::OkStatus();
  return device_.Copy(out.data, in.data, in.size() * DTypeBytes(in.dtype),
                      CopyKind::kDeviceToDevice, stream);
}

absl::Status SingleRank::AllToAll(const TensorView& in, const int64_t* send, const TensorView& out,
                                  const int64_t* receive, Stream stream) {
  if (send[0] != receive[0]) {
    return absl::InvalidArgumentError(
        absl::StrCat("AllToAll: send[0] = ", send[0], ", receive[0] = ", receive[0]));
  }
  return AllGather(in, send, out, stream);
}

absl::Status SingleRank::Broadcast(const TensorView&, int32_t root, Stream) {
  if (root != 0) {
    return absl::InvalidArgumentError(absl::StrCat("Broadcast: root = ", root, " in a group of 1"));
  }
  return absl::OkStatus();
}

absl::Status SingleRank::Barrier(Stream) { return absl::OkStatus(); }

}  // namespace millrace
