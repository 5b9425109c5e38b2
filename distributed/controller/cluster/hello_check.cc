#include "distributed/controller/cluster/hello_check.h"

#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace millrace {
namespace {

constexpr size_t kMaxText = 1024;

bool Printable(const std::string& text) {
  if (text.size() > kMaxText) return false;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  }
  return true;
}

class Diff final {
 public:
  void Compare(const char* what, const std::string& worker, const std::string& controller) {
    if (worker == controller) return;
    lines_.push_back(absl::StrCat(what, ": worker ", worker.empty() ? "(none)" : worker,
                                  ", controller ", controller));
  }
  absl::Status Result() const {
    if (lines_.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("worker and controller differ: ", absl::StrJoin(lines_, "; ")));
  }

 private:
  std::vector<std::string> lines_;
};

}  // namespace

absl::Status CheckHello(const worker::Hello& hello, const HelloRules& rules) {
  for (const std::string* text :
       {&hello.build_version(), &hello.protocol_revision(), &hello.host(), &hello.device_kind(),
        &hello.memory_id(), &hello.device_description(), &hello.model_dir(),
        &hello.model_fingerprint(), &hello.instance()}) {
    if (!Printable(*text)) {
      return absl::InvalidArgumentError("hello: a text is too long or not printable");
    }
  }
  Diff diff;
  diff.Compare("build version", hello.build_version(), rules.build_version);
  diff.Compare("protocol revision", hello.protocol_revision(), rules.protocol_revision);
  if (!rules.device_kind.empty()) {
    diff.Compare("device kind", hello.device_kind(), rules.device_kind);
  }
  if (!rules.model_fingerprint.empty() && !hello.model_fingerprint().empty()) {
    diff.Compare("model fingerprint", hello.model_fingerprint(), rules.model_fingerprint);
  }
  if (rules.tensor_parallel_size > 0 && hello.tensor_parallel_size() > 0) {
    diff.Compare("tensor parallel size", absl::StrCat(hello.tensor_parallel_size()),
                 absl::StrCat(rules.tensor_parallel_size));
  }
  return diff.Result();
}

}  // namespace millrace
