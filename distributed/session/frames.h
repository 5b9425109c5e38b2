// Messages cut into frames and put together again, so that the size limit of the stream, which also
// holds for peers that have proved nothing yet, can be small.
#ifndef DISTRIBUTED_SESSION_FRAMES_H_
#define DISTRIBUTED_SESSION_FRAMES_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/worker.pb.h"

namespace millrace {

inline constexpr size_t kMaxBodyBytes = size_t{1} << 20;       // of one frame
inline constexpr int kMaxFrameBytes = (1 << 20) + 1024;        // gRPC's limit on the stream
inline constexpr size_t kMaxMessageBytes = size_t{512} << 20;  // of one message

// Outgoing frames in order. Not thread-safe.
class FrameQueue final {
 public:
  void PushFrame(worker::Frame frame) { frames_.push_back({std::move(frame), nullptr}); }
  // The bytes are shared, so one plan can go to many ranks.
  void PushMessage(std::shared_ptr<const std::string> bytes);
  bool empty() const { return frames_.empty(); }
  // Fills `frame` with the next one. REQUIRES: !empty().
  void Pop(worker::Frame* frame);
  void Clear();

 private:
  struct Entry {
    worker::Frame frame;
    std::shared_ptr<const std::string> message;  // else `frame`
  };
  std::deque<Entry> frames_;
  size_t offset_ = 0;  // into the first entry's message
};

// Incoming frames to messages. Not thread-safe.
class FrameAssembler final {
 public:
  explicit FrameAssembler(size_t max_message_bytes = kMaxMessageBytes)
      : limit_(max_message_bytes) {}

  // The message that `frame` completes, or nothing yet. ResourceExhausted past the limit,
  // InvalidArgument for a frame that belongs to a handshake.
  absl::StatusOr<std::optional<std::string>> Add(worker::Frame frame);

 private:
  const size_t limit_;
  std::string partial_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_SESSION_FRAMES_H_
