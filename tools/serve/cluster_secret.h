// Where the tools find the cluster secret.
#ifndef TOOLS_SERVE_CLUSTER_SECRET_H_
#define TOOLS_SERVE_CLUSTER_SECRET_H_

#include <string>

#include "absl/status/statusor.h"

namespace millrace {

// The secret in `file`, which must exist. "": in cluster-secret in the user's cache folder
// (millrace/ under $XDG_CACHE_HOME or ~/.cache), made when it is not there: processes of one user
// on one machine find each other without further ado.
absl::StatusOr<std::string> ClusterSecret(const std::string& file);

}  // namespace millrace

#endif  // TOOLS_SERVE_CLUSTER_SECRET_H_
