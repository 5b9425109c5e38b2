// What the user can do about a failed start. The advice is chosen where it is known what was tried,
// and travels with the error.
#ifndef TOOLS_SERVE_ADVICE_H_
#define TOOLS_SERVE_ADVICE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace millrace {

// What a start does, in this order.
enum class StartStep : uint8_t {
  kFlags,
  kModel,      // the folder's config
  kTokenizer,  // and its settings
  kSplit,      // of the model over the ranks
  kTls,
  kSecret,
  kWeights,  // what they are, before any is loaded
  kListen,   // for clients and metrics
  kListenForWorkers,
  kWorkers,      // what they report: load, cache
  kLoadLocally,  // the same in this process
};

// One line for an error with `code` in `step`.
std::string AdviceFor(StartStep step, absl::StatusCode code);

// The same status, with the step's advice unless it carries some already.
absl::Status During(StartStep step, absl::Status status);
template <typename T>
absl::StatusOr<T> During(StartStep step, absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return During(step, result.status());
}

// What the status carries; empty: nothing.
std::string AdviceOf(const absl::Status& status);

}  // namespace millrace

#endif  // TOOLS_SERVE_ADVICE_H_
