// Sends one Generate request and shows its answer as it comes.
#ifndef TOOLS_CLIENT_GENERATE_H_
#define TOOLS_CLIENT_GENERATE_H_

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "distributed/wire/client_request.h"
#include "distributed/wire/response.h"
#include "proto/vllm_engine.grpc.pb.h"
#include "tools/client/chat_answer.h"

namespace millrace {

struct ShowOptions {
  bool json = false;  // one JSON object at the end instead of text
  bool show_logprobs = false;
  // Given: answers are read as those of a model that reasons and calls tools.
  std::optional<ChatReading> reading = {};
  bool moving = false;  // `notes` is a terminal: show a spinner
  absl::Duration timeout = absl::InfiniteDuration();
};

// Text (or JSON) goes to `answer`, everything else to `notes`. The server's error when it fails.
absl::Status GenerateAndShow(vllm::grpc::engine::VllmEngine::Stub& stub,
                             const ClientRequest& request, const ShowOptions& options,
                             std::ostream& answer, std::ostream& notes);

// "[stop: 12 prompt + 34 new tokens, first after 0.12 s, then 21.0 ms each (47.6 tokens/s)]"
std::string UsageLine(const ResponseComplete& complete);
// All choices as one JSON object. `messages`: what was read out of each, or empty.
std::string AnswerJson(const std::vector<ResponseComplete>& choices,
                       const std::vector<ChatAnswer>& messages);

}  // namespace millrace

#endif  // TOOLS_CLIENT_GENERATE_H_
