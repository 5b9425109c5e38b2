#include "kernels/cuda/dynamic_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

// Where CUDA's own installer puts it, which does not tell the dynamic linker.
constexpr char kCudaFolder[] = "/usr/local/cuda/lib64/";

}  // namespace

absl::StatusOr<DynamicLibrary> DynamicLibrary::Load(const std::string& file,
                                                    const std::string& advice) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return DynamicLibrary(file, handle);
  const std::string error = dlerror();
  handle = dlopen(absl::StrCat(kCudaFolder, file).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return DynamicLibrary(file, handle);
  return absl::NotFoundError(absl::StrCat("cannot load ", file, ": ", error, "; ", advice));
}

void* DynamicLibrary::Symbol(const char* name) const { return dlsym(handle_, name); }

absl::Status DynamicLibrary::Missing(const char* name) const {
  return absl::NotFoundError(absl::StrCat(file_, " has no ", name));
}

}  // namespace millrace
