#include "distributed/comm/directory_store.h"

#include <cstdio>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"

namespace millrace {

std::string DirectoryStore::Path(const std::string& key) const {
  return absl::StrCat(folder_, "/", absl::StrReplaceAll(key, {{"/", "_"}}));
}

absl::Status DirectoryStore::Set(const std::string& key, const std::string& value) {
  const std::string aside = Path(key) + ".new";
  std::ofstream(aside, std::ios::binary) << value;
  if (std::rename(aside.c_str(), Path(key).c_str()) != 0) {
    return absl::InternalError(absl::StrCat("rendezvous: cannot write ", Path(key)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> DirectoryStore::Get(const std::string& key, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (absl::Now() < deadline) {
    std::ifstream file(Path(key), std::ios::binary);
    if (file) {
      return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    absl::SleepFor(absl::Milliseconds(2));
  }
  return absl::DeadlineExceededError(absl::StrCat("rendezvous: nobody has set key ", key));
}

}  // namespace millrace
