#include "distributed/wire/error_details.h"

#include <string>

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(ErrorDetails, FieldSurvivesTheWire) {
  const absl::Status status = InvalidField("sampling_params.n", "is 17, the limit is 16");
  EXPECT_EQ(status.message(), "sampling_params.n: is 17, the limit is 16");
  const grpc::Status wire = ToGrpcStatus(status);
  EXPECT_EQ(wire.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const absl::Status back = FromGrpcStatus(wire);
  EXPECT_EQ(back, status);
  EXPECT_EQ(GetErrorFacts(back).field, "sampling_params.n");
}

TEST(ErrorDetails, AllFactsSurviveTheWire) {
  ErrorFacts facts;
  facts.field = "f";
  facts.reason = "WORKER_LOST";
  facts.rank = 3;
  facts.retry_after = absl::Milliseconds(1500);
  const absl::Status back =
      FromGrpcStatus(ToGrpcStatus(WithFacts(absl::UnavailableError("gone"), facts)));
  const ErrorFacts out = GetErrorFacts(back);
  EXPECT_EQ(out.field, "f");
  EXPECT_EQ(out.reason, "WORKER_LOST");
  EXPECT_EQ(out.rank, 3);
  EXPECT_EQ(out.retry_after, absl::Milliseconds(1500));
}

TEST(ErrorDetails, PlainStatusStaysPlain) {
  const grpc::Status wire = ToGrpcStatus(absl::InternalError("bug"));
  EXPECT_TRUE(wire.error_details().empty());
  EXPECT_EQ(FromGrpcStatus(wire), absl::InternalError("bug"));
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
}

TEST(ErrorDetails, MalformedDetailsCountAsAbsent) {
  const grpc::Status wire(grpc::StatusCode::INTERNAL, "m", std::string("\xff\xff\xff"));
  const absl::Status status = FromGrpcStatus(wire);
  EXPECT_EQ(status, absl::InternalError("m"));
  absl::Status bad = absl::InternalError("m");
  bad.SetPayload("type.googleapis.com/google.rpc.ErrorInfo", absl::Cord("\xff"));
  EXPECT_EQ(GetErrorFacts(bad).reason, "");
}

TEST(ErrorDetails, EngineStatusesGetTheirReasons) {
  const ErrorFacts lost = GetErrorFacts(
      AddEngineFacts(absl::UnavailableError("WORKER_LOST: rank 12 (host a) is gone")));
  EXPECT_EQ(lost.reason, "WORKER_LOST");
  EXPECT_EQ(lost.rank, 12);
  EXPECT_EQ(GetErrorFacts(AddEngineFacts(absl::UnavailableError("DRAINING: bye"))).reason,
            "DRAINING");
  const ErrorFacts fault =
      GetErrorFacts(AddEngineFacts(absl::InternalError("NUMERIC_FAULT: rank 1 saw NaN")));
  EXPECT_EQ(fault.reason, "NUMERIC_FAULT");
  EXPECT_EQ(fault.rank, -1);
  const ErrorFacts full = GetErrorFacts(AddEngineFacts(absl::ResourceExhaustedError("the queue")));
  EXPECT_EQ(full.reason, "QUEUE_FULL");
  EXPECT_GT(full.retry_after, absl::ZeroDuration());
  EXPECT_EQ(GetErrorFacts(AddEngineFacts(absl::InternalError("Oops: not a reason"))).reason, "");
  // A field that was named before stays named.
  EXPECT_EQ(GetErrorFacts(AddEngineFacts(InvalidField("text", "is empty"))).field, "text");
}

}  // namespace
}  // namespace millrace
