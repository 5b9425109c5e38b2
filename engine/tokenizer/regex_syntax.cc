#include "engine/tokenizer/regex_syntax.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

// Members of a character class, without the brackets.
constexpr std::string_view kWordSet = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\xB2\xB3\xB9\xBC-\xBE)";
constexpr std::string_view kHexSet = "0-9A-Fa-f";
constexpr std::string_view kSpaceSet =
    R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// Oniguruma's names, lower case without blanks, '_' and '-', and the members they stand for.
constexpr std::pair<std::string_view, std::string_view> kPropertyNames[] = {
    {"alpha", R"(\p{Alphabetic})"},
    {"alphabetic", R"(\p{Alphabetic})"},
    {"alnum", R"(\p{Alphabetic}\p{Nd})"},
    {"digit", R"(\p{Nd})"},
    {"space", kSpaceSet},
    {"whitespace", kSpaceSet},
    {"upper", R"(\p{Uppercase})"},
    {"uppercase", R"(\p{Uppercase})"},
    {"lower", R"(\p{Lowercase})"},
    {"lowercase", R"(\p{Lowercase})"},
    {"word", kWordSet},
    {"xdigit", kHexSet},
    {"letter", R"(\p{L})"},
    {"mark", R"(\p{M})"},
    {"number", R"(\p{N})"},
    {"punct", R"(\p{P})"},
    {"punctuation", R"(\p{P})"},
    {"symbol", R"(\p{S})"},
    {"separator", R"(\p{Z})"},
    {"other", R"(\p{C})"},
    {"uppercaseletter", R"(\p{Lu})"},
    {"lowercaseletter", R"(\p{Ll})"},
    {"decimalnumber", R"(\p{Nd})"},
    {"control", R"(\p{Cc})"},
    {"any", R"(\x{0}-\x{10FFFF})"},
    {"ascii", R"(\x00-\x7F)"},
};

std::string CanonicalName(std::string_view name) {
  std::string canonical;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    canonical.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  }
  return canonical;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (pos_ < in_.size()) RETURN_IF_ERROR(Element());
    return std::move(out_);
  }

 private:
  absl::Status Refuse(const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern \"", std::string(in_), "\": ", what, " at byte ", pos_));
  }
  bool At(std::string_view text) const { return in_.substr(pos_, text.size()) == text; }
  char Peek(size_t ahead = 0) const { return pos_ + ahead < in_.size() ? in_[pos_ + ahead] : '\0'; }

  // One atom, group bracket, alternation bar or quantifier outside a character class.
  absl::Status Element() {
    const char c = in_[pos_];
    if (c == '{' || c == '*' || c == '+' || c == '?') return Quantifier();
    if (c == ')') {
      if (groups_.empty()) return Refuse("unmatched )");
      atom_ = groups_.back();
      groups_.pop_back();
      return Copy(1);
    }
    atom_ = out_.size();
    if (c == '\\') return Escape();
    if (c == '[') return CharacterClass();
    if (c == '(') return Group();
    return Copy(1);
  }

  absl::Status Copy(size_t count) {
    out_.append(in_.substr(pos_, count));
    pos_ += count;
    return absl::OkStatus();
  }

  absl::Status Group() {
    if (At("(?#")) {
      const size_t end = in_.find(')', pos_);
      if (end == std::string_view::npos) return Refuse("comment without )");
      pos_ = end + 1;
      return absl::OkStatus();
    }
    groups_.push_back(out_.size());
    if (!At("(?")) return Copy(1);
    for (const std::string_view head : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
      if (At(head)) return Copy(head.size());
    }
    if (At("(?<")) return Copy(3);  // a named group
    // Options: in Ruby's syntax m is what others call s.
    size_t end = pos_ + 2;
    while (end < in_.size() && std::string_view("imx-").find(in_[end]) != std::string_view::npos) {
      ++end;
    }
    if (end == pos_ + 2 || end >= in_.size() || (in_[end] != ':' && in_[end] != ')')) {
      return Refuse("group of a kind that is not supported");
    }
    std::string options(in_.substr(pos_, end - pos_));
    std::replace(options.begin(), options.end(), 'm', 's');
    out_ += options;
    pos_ = end;
    if (in_[end] == ')') groups_.pop_back();
    return Copy(1);
  }

  absl::Status Quantifier() {
    size_t length = 1;
    bool interval = false;
    if (in_[pos_] == '{') {
      length = IntervalLength();
      if (length == 0) {  // a literal brace
        atom_ = out_.size();
        out_ += "\\{";
        ++pos_;
        return absl::OkStatus();
      }
      interval = true;
    }
    if (interval && Peek(1) == ',') {
      out_ += "{0";
      ++pos_;
      RETURN_IF_ERROR(Copy(length - 1));
    } else {
      RETURN_IF_ERROR(Copy(length));
    }
    if (interval && Peek() == '+') {  // in Ruby's syntax not possessive: the whole is repeated
      out_.insert(atom_, "(?:");
      out_ += ")";
      return Copy(1);
    }
    if (Peek() == '?' || Peek() == '+') return Copy(1);
    return absl::OkStatus();
  }

  // Length of {n}, {n,}, {,m} or {n,m} at pos_; 0 when the brace opens none.
  size_t IntervalLength() const {
    size_t end = pos_ + 1;
    int digits = 0;
    int commas = 0;
    for (; end < in_.size() && in_[end] != '}'; ++end) {
      if (std::isdigit(static_cast<unsigned char>(in_[end])) != 0) {
        ++digits;
      } else if (in_[end] == ',' && commas == 0) {
        ++commas;
      } else {
        return 0;
      }
    }
    return end < in_.size() && digits > 0 ? end + 1 - pos_ : 0;
  }

  absl::Status CharacterClass() {
    RETURN_IF_ERROR(Copy(At("[^") ? 2 : 1));
    if (Peek() == ']') {
      out_ += '\\';
      RETURN_IF_ERROR(Copy(1));
    }
    while (pos_ < in_.size() && in_[pos_] != ']') {
      if (At("&&")) return Refuse("intersection && in a character class is not supported");
      if (At("[:")) {
        RETURN_IF_ERROR(PosixBracket());
      } else if (in_[pos_] == '[') {
        return Refuse("a character class inside another is not supported");
      } else if (in_[pos_] == '\\') {
        RETURN_IF_ERROR(ClassEscape());
      } else {
        RETURN_IF_ERROR(Copy(1));
      }
    }
    if (pos_ >= in_.size()) return Refuse("character class without ]");
    return Copy(1);
  }

  absl::Status PosixBracket() {
    const size_t end = in_.find(":]", pos_ + 2);
    if (end == std::string_view::npos) return Refuse("[: without :]");
    const std::string name(in_.substr(pos_ + 2, end - pos_ - 2));
    for (const std::string_view known :
         {"alpha", "alnum", "digit", "space", "upper", "lower", "word", "xdigit"}) {
      if (name != known) continue;
      out_ += PropertySet(name);
      pos_ = end + 2;
      return absl::OkStatus();
    }
    return Refuse("bracket [:" + name + ":] is not supported");
  }

  static std::string PropertySet(std::string_view name) {
    const std::string canonical = CanonicalName(name);
    for (const auto& [known, set] : kPropertyNames) {
      if (canonical == known) return std::string(set);
    }
    // General categories have one or two letters; what is longer is a script.
    if (canonical.size() <= 2) return "\\p{" + std::string(name) + "}";
    return "\\p{sc:" + std::string(name) + "}";
  }

  // \p{..}, \P{..} or \p{^..} at pos_, as the members of a class and whether they are negated.
  absl::StatusOr<std::pair<std::string, bool>> Property() {
    bool negated = in_[pos_ + 1] == 'P';
    const size_t end = in_.find('}', pos_);
    if (Peek(2) != '{' || end == std::string_view::npos) return Refuse("\\p without {name}");
    std::string_view name = in_.substr(pos_ + 3, end - pos_ - 3);
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    pos_ = end + 1;
    return std::make_pair(PropertySet(name), negated);
  }

  static bool IsSingleProperty(const std::string& set) {
    return set.compare(0, 3, "\\p{") == 0 && set.find('}') == set.size() - 1;
  }

  // The members that a shorthand letter stands for; empty when it is none.
  static std::string_view ShorthandSet(char letter) {
    switch (std::tolower(static_cast<unsigned char>(letter))) {
      case 's':
        return kSpaceSet;
      case 'w':
        return kWordSet;
      case 'd':
        return R"(\p{Nd})";
      case 'h':
        return kHexSet;
      default:
        return {};
    }
  }

  absl::Status Escape() {
    const char c = Peek(1);
    if (c == 'p' || c == 'P') {
      ASSIGN_OR_RETURN(const auto property, Property());
      out_ += (property.second ? "[^" : "[") + property.first + "]";
      return absl::OkStatus();
    }
    if (const std::string_view set = ShorthandSet(c); !set.empty()) {
      const bool negated = std::isupper(static_cast<unsigned char>(c)) != 0;
      out_ += (negated ? "[^" : "[") + std::string(set) + "]";
      pos_ += 2;
      return absl::OkStatus();
    }
    if (c == 'b' || c == 'B') {
      const std::string word = "[" + std::string(kWordSet) + "]";
      out_ += c == 'b' ? "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))"
                       : "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))";
      pos_ += 2;
      return absl::OkStatus();
    }
    if (std::string_view("AzZGRXk123456789").find(c) != std::string_view::npos) return Copy(2);
    return SimpleEscape();
  }

  absl::Status ClassEscape() {
    const char c = Peek(1);
    if (c == 'p' || c == 'P') {
      ASSIGN_OR_RETURN(const auto property, Property());
      if (!property.second) {
        out_ += property.first;
        return absl::OkStatus();
      }
      if (!IsSingleProperty(property.first)) return Refuse("negated property in a class");
      out_ += "\\P" + property.first.substr(2);
      return absl::OkStatus();
    }
    if (const std::string_view set = ShorthandSet(c); !set.empty()) {
      if (c == 'W' || c == 'H') return Refuse(std::string("\\") + c + " in a character class");
      out_ += c == 'S' ? R"(\P{White_Space})" : c == 'D' ? R"(\P{Nd})" : set;
      pos_ += 2;
      return absl::OkStatus();
    }
    if (c == 'b') {  // backspace
      out_ += R"(\x08)";
      pos_ += 2;
      return absl::OkStatus();
    }
    return SimpleEscape();
  }

  // Escapes that mean one character, inside and outside a class.
  absl::Status SimpleEscape() {
    const char c = Peek(1);
    if (pos_ + 1 >= in_.size()) return Refuse("pattern ends in a backslash");
    if (std::string_view("rntfae0").find(c) != std::string_view::npos) return Copy(2);
    if (c == 'v') {
      out_ += R"(\x0B)";
      pos_ += 2;
      return absl::OkStatus();
    }
    if (c == 'u' || (c == 'x' && Peek(2) != '{')) return HexEscape(c == 'u' ? 4 : 2);
    if (c == 'x') {
      const size_t end = in_.find('}', pos_);
      if (end == std::string_view::npos) return Refuse("\\x{ without }");
      return Copy(end + 1 - pos_);
    }
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      return Refuse(std::string("escape \\") + c + " is not supported");
    }
    return Copy(static_cast<unsigned char>(c) < 0x80 ? 2 : 1);
  }

  absl::Status HexEscape(size_t max_digits) {
    size_t digits = 0;
    while (digits < max_digits &&
           std::isxdigit(static_cast<unsigned char>(Peek(2 + digits))) != 0) {
      ++digits;
    }
    if (digits == 0) return Refuse("escape without hexadecimal digits");
    out_ += "\\x{" + std::string(in_.substr(pos_ + 2, digits)) + "}";
    pos_ += 2 + digits;
    return absl::OkStatus();
  }

  std::string_view in_;
  size_t pos_ = 0;
  std::string out_;
  size_t atom_ = 0;             // where the last atom begins in out_
  std::vector<size_t> groups_;  // where each open group begins in out_
};

}  // namespace

absl::StatusOr<std::string> OnigurumaToPcre2(std::string_view pattern) {
  return Translator(pattern).Run();
}

}  // namespace millrace
