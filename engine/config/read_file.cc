#include "engine/config/read_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace millrace {

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  std::error_code error;
  const std::filesystem::file_status state = std::filesystem::status(path, error);
  if (state.type() == std::filesystem::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  }
  if (!std::filesystem::is_regular_file(state)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
  if (error || size > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", error ? error.message() : absl::StrCat(size, " bytes"), ", limit ", max_bytes));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::UnavailableError(absl::StrCat(path, ": cannot be opened: ", strerror(errno)));
  }
  std::string bytes(static_cast<size_t>(size), '\0');
  file.read(bytes.data(), size);
  if (file.gcount() != size) {
    return absl::UnavailableError(
        absl::StrCat(path, ": read ", file.gcount(), " of ", size, " bytes"));
  }
  return bytes;
}

}  // namespace millrace
