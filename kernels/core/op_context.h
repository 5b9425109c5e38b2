// What every op gets besides its arguments.
#ifndef KERNELS_CORE_OP_CONTEXT_H_
#define KERNELS_CORE_OP_CONTEXT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/core/device.h"

namespace millrace {

// Scratch memory of one worker: a bump allocator over one device buffer. An op takes what it needs
// through a WorkspaceScope, which gives it back at the end of the op. Not thread-safe: worker
// thread only. The memory never moves, so captured graphs stay valid.
class Workspace final {
 public:
  Workspace() = default;
  Workspace(void* base, int64_t bytes) : base_(static_cast<char*>(base)), bytes_(bytes) {}

  int64_t bytes() const { return bytes_; }
  int64_t peak() const { return peak_; }  // most bytes in use at once so far

 private:
  friend class WorkspaceScope;
  char* base_ = nullptr;
  int64_t bytes_ = 0;
  int64_t used_ = 0;
  int64_t peak_ = 0;
};

class WorkspaceScope final {
 public:
  explicit WorkspaceScope(Workspace& workspace) : workspace_(workspace), mark_(workspace.used_) {}
  ~WorkspaceScope() { workspace_.used_ = mark_; }
  WorkspaceScope(const WorkspaceScope&) = delete;
  WorkspaceScope& operator=(const WorkspaceScope&) = delete;

  // 256-byte aligned memory, valid until the scope ends, contents undefined.
  // ResourceExhausted (asked for, available) when the workspace is too small.
  absl::StatusOr<void*> Take(int64_t bytes);

 private:
  Workspace& workspace_;
  int64_t mark_;
};

// Worker thread. Borrows; all outlive the call.
struct OpContext {
  Device& device;
  Stream stream;
  Workspace& workspace;
};

}  // namespace millrace

#endif  // KERNELS_CORE_OP_CONTEXT_H_
