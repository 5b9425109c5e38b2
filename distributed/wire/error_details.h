// Typed errors: what a status carries besides code and message, and its form on the wire.
//
// Details live as payloads of the absl::Status under their google.rpc type URLs, so a status keeps
// them on its way through code that knows nothing about the wire.
#ifndef DISTRIBUTED_WIRE_ERROR_DETAILS_H_
#define DISTRIBUTED_WIRE_ERROR_DETAILS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/support/status.h"

namespace millrace {

// Reasons for programs (google.rpc.ErrorInfo.reason).
inline constexpr std::string_view kReasonLoading = "LOADING";
inline constexpr std::string_view kReasonDraining = "DRAINING";
inline constexpr std::string_view kReasonWorkerLost = "WORKER_LOST";
inline constexpr std::string_view kReasonNumericFault = "NUMERIC_FAULT";
inline constexpr std::string_view kReasonQueueFull = "QUEUE_FULL";
inline constexpr std::string_view kReasonSlowReader = "SLOW_READER";
inline constexpr std::string_view kReasonDuplicateRequest = "DUPLICATE_REQUEST";
inline constexpr std::string_view kReasonUnknownRequest = "UNKNOWN_REQUEST";

struct ErrorFacts {
  std::string field;   // of the request, "" when no field is at fault
  std::string reason;  // "" when none
  int32_t rank = -1;   // of the worker at fault, -1 when none
  absl::Duration retry_after = absl::ZeroDuration();  // > 0: trying again helps
};

// An error about one field: message "field: message", detail BadRequest{field, message}.
// `field` is the path in the request, such as "sampling_params.top_p".
absl::Status FieldError(absl::StatusCode code, std::string_view field, std::string_view message);
// FieldError with INVALID_ARGUMENT.
absl::Status InvalidField(std::string_view field, std::string_view message);

// The same status with facts added. Empty facts are left out.
absl::Status WithFacts(absl::Status status, const ErrorFacts& facts);
absl::Status WithReason(absl::Status status, std::string_view reason);

// What the status carries; malformed details count as absent.
ErrorFacts GetErrorFacts(const absl::Status& status);

// An engine's status as clients see it: statuses whose message begins with a reason ("WORKER_LOST:
// ...") get it as a fact, and a rank named as "rank N" likewise.
absl::Status AddEngineFacts(absl::Status status);

// Code, message and details both ways.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace millrace

#endif  // DISTRIBUTED_WIRE_ERROR_DETAILS_H_
