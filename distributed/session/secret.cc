#include "distributed/session/secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "distributed/session/handshake.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

// Closes on the way out.
class Descriptor final {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::StatusOr<std::string> ReadUpTo(int fd, size_t limit, const std::string& path) {
  std::string text(limit, '\0');
  size_t size = 0;
  while (size < limit) {
    const ssize_t got = read(fd, text.data() + size, limit - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::UnavailableError(
          absl::StrCat("cluster secret ", path, ": ", std::strerror(errno)));
    }
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

}  // namespace

absl::Status CheckSecret(const std::string& secret) {
  if (secret.size() < kMinSecretBytes || secret.size() > kMaxSecretBytes) {
    return absl::InvalidArgumentError(absl::StrCat("cluster secret: it has ", secret.size(),
                                                   " bytes, want ", kMinSecretBytes, " to ",
                                                   kMaxSecretBytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    const std::string message = absl::StrCat("cluster secret ", path, ": ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::PermissionDeniedError(message);
  }
  struct stat info = {};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("cluster secret ", path, ": not a plain file"));
  }
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        "cluster secret ", path, ": others may use it; close it with: chmod 600 ", path));
  }
  ASSIGN_OR_RETURN(std::string secret, ReadUpTo(file.get(), kMaxSecretBytes + 3, path));
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  const absl::Status fit = CheckSecret(secret);
  if (!fit.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", fit.message()));
  return secret;
}

absl::StatusOr<std::string> ReadOrMakeSecretFile(const std::string& path) {
  if (access(path.c_str(), F_OK) == 0) return ReadSecretFile(path);
  ASSIGN_OR_RETURN(const std::string bytes, RandomBytes(32));
  const std::string text = absl::StrCat(absl::BytesToHexString(bytes), "\n");
  // Written aside and linked into place, so nobody ever reads half a secret or replaces another's.
  const std::string aside = absl::StrCat(path, ".", getpid());
  {
    const Descriptor file(open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.get() < 0 ||
        write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      const absl::Status error = absl::PermissionDeniedError(
          absl::StrCat("cluster secret ", path, ": cannot make it: ", std::strerror(errno)));
      if (file.get() >= 0) unlink(aside.c_str());
      return error;
    }
  }
  const int linked = link(aside.c_str(), path.c_str());
  const int link_error = errno;
  unlink(aside.c_str());
  if (linked != 0 && link_error != EEXIST) {
    return absl::PermissionDeniedError(
        absl::StrCat("cluster secret ", path, ": cannot make it: ", std::strerror(link_error)));
  }
  return ReadSecretFile(path);
}

}  // namespace millrace
