// A shared library that is loaded when it is first needed. Linked in the usual way, a library is
// needed by every program that can use it, also where nobody does, and its thread-local data take
// room of every thread's stack.
#ifndef KERNELS_CUDA_DYNAMIC_LIBRARY_H_
#define KERNELS_CUDA_DYNAMIC_LIBRARY_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace millrace {

class DynamicLibrary final {
 public:
  // `file` is looked for as the dynamic linker does, then in /usr/local/cuda/lib64. It stays loaded
  // for the life of the process. NotFound, with `advice` at the end.
  static absl::StatusOr<DynamicLibrary> Load(const std::string& file, const std::string& advice);

  // Sets `function` to the one of this name. NotFound naming both.
  template <typename Function>
  absl::Status Find(const char* name, Function* function) const {
    *function = reinterpret_cast<Function>(Symbol(name));
    return *function != nullptr ? absl::OkStatus() : Missing(name);
  }

 private:
  DynamicLibrary(std::string file, void* handle) : file_(std::move(file)), handle_(handle) {}
  void* Symbol(const char* name) const;
  absl::Status Missing(const char* name) const;

  std::string file_;
  void* handle_ = nullptr;
};

}  // namespace millrace

#endif  // KERNELS_CUDA_DYNAMIC_LIBRARY_H_
