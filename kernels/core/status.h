// The two macros of Millrace that return early. Nothing else hides control flow.
#ifndef KERNELS_CORE_STATUS_H_
#define KERNELS_CORE_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the status of `expr` from the enclosing function unless it is OK.
#define RETURN_IF_ERROR(expr)                \
  do {                                       \
    ::absl::Status mr_status_ = (expr);      \
    if (!mr_status_.ok()) return mr_status_; \
  } while (false)

#define MR_CONCAT_INNER_(a, b) a##b
#define MR_CONCAT_(a, b) MR_CONCAT_INNER_(a, b)
#define MR_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                         \
  if (!tmp.ok()) return tmp.status();        \
  lhs = std::move(tmp).value()

// Evaluates `expr` (a StatusOr), returns its status on error, else moves its value into `lhs`.
#define ASSIGN_OR_RETURN(lhs, expr) \
  MR_ASSIGN_OR_RETURN_(MR_CONCAT_(mr_statusor_, __LINE__), lhs, expr)

#endif  // KERNELS_CORE_STATUS_H_
