#include "tools/client/explain_error.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "distributed/wire/error_details.h"

namespace millrace {
namespace {

std::string AdviceForReason(const ErrorFacts& facts) {
  if (facts.reason == kReasonLoading) return "The model is still loading: try again in a moment.";
  if (facts.reason == kReasonDraining) return "The server is shutting down: use another one.";
  if (facts.reason == kReasonWorkerLost) {
    return "A worker of the server is gone: see the controller's output, then try again.";
  }
  if (facts.reason == kReasonNumericFault) {
    return "The model computed NaN or Inf: the weights or the dtype are at fault.";
  }
  if (facts.reason == kReasonQueueFull) return "The server is full: try again in a moment.";
  return "";
}

std::string AdviceForCode(absl::StatusCode code, const std::string& server) {
  switch (code) {
    case absl::StatusCode::kUnavailable:
      return absl::StrCat("Nobody answers at ", server,
                          ": is the controller running? --server sets another address.");
    case absl::StatusCode::kInvalidArgument:
      return "Change the option that is named above.";
    case absl::StatusCode::kUnimplemented:
      return "This server cannot do that: leave the option out.";
    case absl::StatusCode::kDeadlineExceeded:
      return "It took longer than --timeout allows: raise it, or ask for fewer tokens.";
    case absl::StatusCode::kFailedPrecondition:
      return "The served model lacks what this needs: try --prompt without --chat, or --token-ids.";
    case absl::StatusCode::kAlreadyExists:
      return "Choose another --request-id.";
    case absl::StatusCode::kResourceExhausted:
      return "Ask for less, or try again later.";
    case absl::StatusCode::kCancelled:
      return "The request was ended before its answer.";
    default:
      return "This is the server's fault: its output says more.";
  }
}

}  // namespace

std::string ExplainError(const absl::Status& status, const std::string& server) {
  std::string advice = AdviceForReason(GetErrorFacts(status));
  if (advice.empty()) advice = AdviceForCode(status.code(), server);
  return absl::StrCat("error: ", absl::StatusCodeToString(status.code()), ": ",
                      std::string(status.message()), "\n", advice, "\n");
}

}  // namespace millrace
