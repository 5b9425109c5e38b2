#include "distributed/wire/error_details.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/any.pb.h"
#include "proto/error_details.pb.h"

namespace millrace {
namespace {

constexpr char kUrlPrefix[] = "type.googleapis.com/";
constexpr char kDomain[] = "millrace";
constexpr char kRankKey[] = "rank";

template <typename Message>
std::string UrlOf() {
  return absl::StrCat(kUrlPrefix, Message::descriptor()->full_name());
}

template <typename Message>
void SetDetail(absl::Status& status, const Message& message) {
  status.SetPayload(UrlOf<Message>(), absl::Cord(message.SerializeAsString()));
}

// The default message when the status has no such detail, or a malformed one.
template <typename Message>
Message GetDetail(const absl::Status& status) {
  Message message;
  const absl::optional<absl::Cord> payload = status.GetPayload(UrlOf<Message>());
  if (payload.has_value() && !message.ParseFromString(std::string(*payload))) message.Clear();
  return message;
}

// "REASON" of a message "REASON: text", else "".
std::string LeadingReason(std::string_view message) {
  const size_t colon = message.find(": ");
  if (colon == std::string_view::npos || colon < 3) return "";
  const std::string_view word = message.substr(0, colon);
  const bool is_reason = std::all_of(word.begin(), word.end(), [](char c) {
    return std::isupper(static_cast<unsigned char>(c)) != 0 || c == '_';
  });
  return is_reason ? std::string(word) : "";
}

// N of the first "rank N" in the message, else -1.
int32_t NamedRank(std::string_view message) {
  constexpr std::string_view kWord = "rank ";
  const size_t at = message.find(kWord);
  if (at == std::string_view::npos) return -1;
  const size_t begin = at + kWord.size();
  size_t end = begin;
  while (end < message.size() && std::isdigit(static_cast<unsigned char>(message[end])) != 0) ++end;
  int32_t rank = -1;
  if (!absl::SimpleAtoi(absl::string_view(message.data() + begin, end - begin), &rank)) return -1;
  return rank;
}

}  // namespace

absl::Status FieldError(absl::StatusCode code, std::string_view field, std::string_view message) {
  absl::Status status(code, absl::StrCat(std::string(field), ": ", std::string(message)));
  google::rpc::BadRequest detail;
  google::rpc::BadRequest::FieldViolation* violation = detail.add_field_violations();
  violation->set_field(std::string(field));
  violation->set_description(std::string(message));
  SetDetail(status, detail);
  return status;
}

absl::Status InvalidField(std::string_view field, std::string_view message) {
  return FieldError(absl::StatusCode::kInvalidArgument, field, message);
}

absl::Status WithFacts(absl::Status status, const ErrorFacts& facts) {
  if (!facts.field.empty()) {
    google::rpc::BadRequest detail;
    detail.add_field_violations()->set_field(facts.field);
    SetDetail(status, detail);
  }
  if (!facts.reason.empty() || facts.rank >= 0) {
    google::rpc::ErrorInfo detail;
    detail.set_reason(facts.reason);
    detail.set_domain(kDomain);
    if (facts.rank >= 0) (*detail.mutable_metadata())[kRankKey] = absl::StrCat(facts.rank);
    SetDetail(status, detail);
  }
  if (facts.retry_after > absl::ZeroDuration()) {
    google::rpc::RetryInfo detail;
    const int64_t nanos = absl::ToInt64Nanoseconds(facts.retry_after);
    detail.mutable_retry_delay()->set_seconds(nanos / 1000000000);
    detail.mutable_retry_delay()->set_nanos(static_cast<int32_t>(nanos % 1000000000));
    SetDetail(status, detail);
  }
  return status;
}

absl::Status WithReason(absl::Status status, std::string_view reason) {
  ErrorFacts facts;
  facts.reason = reason;
  return WithFacts(std::move(status), facts);
}

ErrorFacts GetErrorFacts(const absl::Status& status) {
  ErrorFacts facts;
  const auto bad_request = GetDetail<google::rpc::BadRequest>(status);
  if (bad_request.field_violations_size() > 0)
    facts.field = bad_request.field_violations(0).field();
  const auto info = GetDetail<google::rpc::ErrorInfo>(status);
  facts.reason = info.reason();
  const auto rank = info.metadata().find(kRankKey);
  if (rank != info.metadata().end() && !absl::SimpleAtoi(rank->second, &facts.rank)) {
    facts.rank = -1;
  }
  const auto retry = GetDetail<google::rpc::RetryInfo>(status);
  facts.retry_after =
      absl::Seconds(retry.retry_delay().seconds()) + absl::Nanoseconds(retry.retry_delay().nanos());
  return facts;
}

absl::Status AddEngineFacts(absl::Status status) {
  if (status.ok()) return status;
  const std::string_view message(status.message().data(), status.message().size());
  ErrorFacts facts = GetErrorFacts(status);
  facts.field.clear();  // kept as it is
  if (facts.reason.empty()) facts.reason = LeadingReason(message);
  if (facts.reason.empty()) {
    if (status.code() == absl::StatusCode::kUnavailable) facts.reason = kReasonWorkerLost;
    if (status.code() == absl::StatusCode::kResourceExhausted) facts.reason = kReasonQueueFull;
  }
  if (facts.rank < 0 && facts.reason == kReasonWorkerLost) facts.rank = NamedRank(message);
  if (facts.reason == kReasonQueueFull) facts.retry_after = absl::Seconds(1);
  return WithFacts(std::move(status), facts);
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status details;
  status.ForEachPayload([&details](absl::string_view url, const absl::Cord& payload) {
    google::protobuf::Any* any = details.add_details();
    any->set_type_url(std::string(url));
    any->set_value(std::string(payload));
  });
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message(status.message());
  if (details.details_size() == 0) return grpc::Status(code, message);
  details.set_code(static_cast<int32_t>(status.code()));
  details.set_message(message);
  return grpc::Status(code, message, details.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return result;
  for (const google::protobuf::Any& any : details.details()) {
    result.SetPayload(any.type_url(), absl::Cord(any.value()));
  }
  return result;
}

}  // namespace millrace
