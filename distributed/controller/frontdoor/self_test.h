// One token through the whole engine, before anyone is told that it serves.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_SELF_TEST_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_SELF_TEST_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/runtime/engine.h"

namespace millrace {

// Waits for it. DEADLINE_EXCEEDED after `timeout`, else what went wrong.
absl::Status GenerateOneToken(Engine& engine, absl::Duration timeout);

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_SELF_TEST_H_
