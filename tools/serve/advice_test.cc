#include "tools/serve/advice.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace millrace {
namespace {

using Code = absl::StatusCode;

TEST(Advice, FitsWhatFailed) {
  const struct {
    StartStep step;
    Code code;
    const char* part;
  } cases[] = {
      {StartStep::kFlags, Code::kInvalidArgument, "--help"},
      {StartStep::kFlags, Code::kUnimplemented, "another model or flag"},
      {StartStep::kModel, Code::kNotFound, "--model the folder with config.json"},
      {StartStep::kModel, Code::kInvalidArgument, "damaged"},
      {StartStep::kModel, Code::kUnimplemented, "another model"},
      {StartStep::kTokenizer, Code::kInvalidArgument, "--tokenizer"},
      {StartStep::kSplit, Code::kInvalidArgument, "--tensor-parallel-size"},
      {StartStep::kTls, Code::kNotFound, "--tls-cert"},
      {StartStep::kSecret, Code::kNotFound, "--cluster-secret-file"},
      {StartStep::kSecret, Code::kPermissionDenied, "chmod 600"},
      {StartStep::kSecret, Code::kInvalidArgument, "openssl rand"},
      {StartStep::kWeights, Code::kInvalidArgument, "get the file"},
      {StartStep::kListen, Code::kUnavailable, "--metrics-port"},
      {StartStep::kListen, Code::kInvalidArgument, "--help"},
      {StartStep::kListenForWorkers, Code::kUnavailable, "--worker-port"},
      {StartStep::kWorkers, Code::kResourceExhausted, "--max-model-len"},
      {StartStep::kWorkers, Code::kDeadlineExceeded, "--startup-timeout"},
      {StartStep::kWorkers, Code::kInvalidArgument, "--tensor-parallel-size"},
      {StartStep::kWorkers, Code::kNotFound, "worker --model"},
      {StartStep::kWorkers, Code::kFailedPrecondition, "same build"},
      {StartStep::kWorkers, Code::kInternal, "output of the worker"},
      {StartStep::kLoadLocally, Code::kNotFound, "--model the folder"},
      {StartStep::kLoadLocally, Code::kResourceExhausted, "--max-model-len"},
  };
  for (const auto& c : cases) {
    const std::string advice = AdviceFor(c.step, c.code);
    EXPECT_NE(advice.find(c.part), std::string::npos) << advice;
    EXPECT_EQ(advice.find('\n'), std::string::npos) << advice;
  }
}

TEST(Advice, AMissingSecretIsNotAMissingModel) {
  EXPECT_EQ(AdviceFor(StartStep::kSecret, Code::kNotFound).find("--model"), std::string::npos);
}

TEST(Advice, TravelsWithTheErrorAndTheFirstStays) {
  absl::StatusOr<int> result = absl::NotFoundError("no such file");
  result = During(StartStep::kSecret, result);
  result = During(StartStep::kModel, result);
  EXPECT_EQ(result.status().code(), Code::kNotFound);
  EXPECT_EQ(result.status().message(), "no such file");
  EXPECT_EQ(AdviceOf(result.status()), AdviceFor(StartStep::kSecret, Code::kNotFound));
}

TEST(Advice, SuccessAndStrangersCarryNone) {
  EXPECT_TRUE(During(StartStep::kTls, absl::OkStatus()).ok());
  EXPECT_EQ(*During(StartStep::kTls, absl::StatusOr<int>(3)), 3);
  EXPECT_EQ(AdviceOf(absl::InternalError("")), "");
}

}  // namespace
}  // namespace millrace
