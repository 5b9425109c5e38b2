#include "tools/serve/cluster_secret.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "distributed/session/secret.h"
#include "tools/common/flags.h"
#include "tools/serve/advice.h"

namespace millrace {
namespace {

std::string CacheFolder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return absl::StrCat(cache, "/millrace");
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? absl::StrCat(home, "/.cache/millrace") : "";
}

absl::StatusOr<std::string> FindSecret(const std::string& file) {
  if (!file.empty()) return ReadSecretFile(PathFromUser(file));
  const std::string folder = CacheFolder();
  if (folder.empty()) {
    return absl::NotFoundError(
        "no home folder to keep a cluster secret in: give "
        "--cluster-secret-file");
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::PermissionDeniedError(absl::StrCat("cannot make ", folder, ": ", error.message(),
                                                    "; give --cluster-secret-file"));
  }
  return ReadOrMakeSecretFile(absl::StrCat(folder, "/cluster-secret"));
}

}  // namespace

absl::StatusOr<std::string> ClusterSecret(const std::string& file) {
  return During(StartStep::kSecret, FindSecret(file));
}

}  // namespace millrace
