#include "kernels/cpu/memory_info.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

// A control group that allows more than this sets no limit (version 1 says so with a huge number).
constexpr int64_t kUnlimited = int64_t{1} << 60;

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The number after `key` at the start of a line of `text`: "MemTotal:   123 kB" or "cache 123".
std::optional<int64_t> Field(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

// The single number a control group file holds; nothing for "max".
std::optional<int64_t> Number(const std::string& path) {
  const std::optional<std::string> text = ReadFile(path);
  int64_t value = 0;
  if (!text || !absl::SimpleAtoi(*text, &value) || value >= kUnlimited) return std::nullopt;
  return value;
}

struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* reclaimable;  // field of memory.stat: cache given back under pressure
};

void ApplyGroup(const std::string& folder, const GroupFiles& files, MemoryInfo& info) {
  const std::optional<int64_t> limit = Number(absl::StrCat(folder, "/", files.limit));
  if (!limit) return;
  info.total_bytes = std::min(info.total_bytes, *limit);
  const std::optional<int64_t> usage = Number(absl::StrCat(folder, "/", files.usage));
  if (!usage) return;
  const std::optional<std::string> stat = ReadFile(absl::StrCat(folder, "/memory.stat"));
  const int64_t cache = stat ? Field(*stat, files.reclaimable).value_or(0) : 0;
  info.free_bytes = std::min(info.free_bytes,
                             std::max<int64_t>(0, *limit - std::max<int64_t>(0, *usage - cache)));
}

// `group` and every one above it: each may limit.
void ApplyGroups(const std::string& mount, std::string group, const GroupFiles& files,
                 MemoryInfo& info) {
  while (true) {
    ApplyGroup(absl::StrCat(mount, group), files, info);
    const size_t slash = group.find_last_of('/');
    if (slash == std::string::npos || group == "/") return;
    group.resize(slash);
  }
}

}  // namespace

absl::StatusOr<MemoryInfo> ReadMemoryInfo(const std::string& root) {
  const std::string path = absl::StrCat(root, "/proc/meminfo");
  const std::optional<std::string> meminfo = ReadFile(path);
  if (!meminfo) return absl::UnavailableError(absl::StrCat("cannot read ", path));
  const std::optional<int64_t> total_kib = Field(*meminfo, "MemTotal:");
  const std::optional<int64_t> free_kib = Field(*meminfo, "MemAvailable:");
  if (!total_kib || !free_kib) {
    return absl::UnavailableError(absl::StrCat(path, " has no MemTotal or MemAvailable"));
  }
  MemoryInfo info{.total_bytes = *total_kib * 1024, .free_bytes = *free_kib * 1024};

  constexpr GroupFiles kV2 = {"memory.max", "memory.current", "inactive_file"};
  constexpr GroupFiles kV1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                              "total_inactive_file"};
  // Inside a container the group's own folder is often mounted at the top, hence the empty path.
  ApplyGroup(absl::StrCat(root, "/sys/fs/cgroup"), kV2, info);
  ApplyGroup(absl::StrCat(root, "/sys/fs/cgroup/memory"), kV1, info);
  std::istringstream groups(ReadFile(absl::StrCat(root, "/proc/self/cgroup")).value_or(""));
  for (std::string line; std::getline(groups, line);) {  // "0::/path" or "9:memory:/path"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      ApplyGroups(absl::StrCat(root, "/sys/fs/cgroup"), group, kV2, info);
    } else if (controllers == "memory") {
      ApplyGroups(absl::StrCat(root, "/sys/fs/cgroup/memory"), group, kV1, info);
    }
  }
  return info;
}

}  // namespace millrace
