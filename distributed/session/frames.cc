#include "distributed/session/frames.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/check.h"

namespace millrace {

void FrameQueue::PushMessage(std::shared_ptr<const std::string> bytes) {
  frames_.push_back({worker::Frame(), std::move(bytes)});
}

void FrameQueue::Pop(worker::Frame* frame) {
  MR_CHECK(!frames_.empty());
  frame->Clear();
  Entry& entry = frames_.front();
  if (entry.message == nullptr) {
    frame->Swap(&entry.frame);
    frames_.pop_front();
    return;
  }
  const size_t size = std::min(kMaxBodyBytes, entry.message->size() - offset_);
  frame->set_body(entry.message->data() + offset_, size);
  offset_ += size;
  if (offset_ < entry.message->size()) {
    frame->set_more(true);
    return;
  }
  offset_ = 0;
  frames_.pop_front();
}

void FrameQueue::Clear() {
  frames_.clear();
  offset_ = 0;
}

absl::StatusOr<std::optional<std::string>> FrameAssembler::Add(worker::Frame frame) {
  if (!frame.nonce().empty() || !frame.proof().empty()) {
    return absl::InvalidArgumentError("session: a handshake frame after the handshake");
  }
  if (partial_.size() + frame.body().size() > limit_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("session: a message exceeds ", limit_, " bytes"));
  }
  if (partial_.empty()) {
    partial_ = std::move(*frame.mutable_body());
  } else {
    partial_ += frame.body();
  }
  if (frame.more()) return std::optional<std::string>();
  return std::optional<std::string>(std::exchange(partial_, std::string()));
}

}  // namespace millrace
