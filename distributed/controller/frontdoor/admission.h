// From what a client asked for to what the engine runs: prompt ids and resolved sampling options.
// Pure functions, any thread.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_ADMISSION_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_ADMISSION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/controller/frontdoor/served_model.h"
#include "distributed/wire/client_request.h"
#include "engine/request/request.h"

namespace millrace {

// Ids of the prompt, truncated if asked for. INVALID_ARGUMENT naming the field when it is empty or
// leaves no room for output; FAILED_PRECONDITION when the model has no tokenizer or chat template
// and the request needs one. Takes time in proportion to a text prompt.
absl::StatusOr<std::vector<int32_t>> PromptIds(const ClientRequest& request,
                                               const ServedModel& model);

// Client's options over the model's defaults. INVALID_ARGUMENT, with both numbers, when prompt and
// max_tokens exceed the context. `fallback_seed` is used when the client gave none.
absl::StatusOr<SamplingParams> ResolveSampling(const ClientRequest& request, int32_t prompt_tokens,
                                               const ServedModel& model, uint64_t fallback_seed);

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_ADMISSION_H_
