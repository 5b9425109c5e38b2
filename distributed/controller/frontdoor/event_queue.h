// What the engine said about the choices of one call and the call has not looked at yet. Guarded by
// its owner's lock.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_EVENT_QUEUE_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_EVENT_QUEUE_H_

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "distributed/controller/frontdoor/monotonic_time.h"
#include "engine/request/request.h"

namespace millrace {

struct ChoiceEvent {
  int32_t choice = 0;
  MonotonicTime at;
  std::variant<TokenEvent, FinishEvent> event;
};

class EventQueue final {
 public:
  void Push(ChoiceEvent event) {
    bytes_ += Size(event);
    events_.push_back(std::move(event));
  }
  std::vector<ChoiceEvent> TakeAll() {
    bytes_ = 0;
    return std::exchange(events_, {});
  }
  bool empty() const { return events_.empty(); }
  // What a slow reader makes us keep. Scores of the prompt come once and are not counted.
  int64_t bytes() const { return bytes_; }

 private:
  static int64_t Size(const ChoiceEvent& event) {
    auto size = static_cast<int64_t>(sizeof(ChoiceEvent));
    const auto* token = std::get_if<TokenEvent>(&event.event);
    if (token != nullptr && token->logprobs.has_value()) {
      size += static_cast<int64_t>(token->logprobs->top.size() * sizeof(TokenLogprob));
    }
    return size;
  }

  std::vector<ChoiceEvent> events_;
  int64_t bytes_ = 0;
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_EVENT_QUEUE_H_
