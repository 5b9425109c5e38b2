#include "distributed/wire/response_codec.h"

#include <string>
#include <variant>

#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

namespace pb = ::vllm::grpc::engine;
using google::protobuf::util::MessageDifferencer;

ScoredToken Scored(int32_t id, float logprob, int tops) {
  ScoredToken s;
  s.token = {.token = id, .logprob = logprob};
  for (int i = 0; i < tops; ++i) s.top.push_back({.token = id + i, .logprob = logprob - 0.5f * i});
  return s;
}

ResponseChunk FullChunk() {
  ResponseChunk chunk;
  chunk.index = 2;
  chunk.token_ids = {11, 12};
  chunk.text_delta = "caf\xc3\xa9";
  chunk.prompt_tokens = 3;
  chunk.cached_tokens = 1;
  chunk.logprobs = {Scored(11, -0.25f, 2), Scored(12, -4, 2)};
  chunk.prompt_scores =
      PromptScores{.first_token = 5, .rest = {Scored(6, -1, 3), Scored(7, -2, 3)}};
  return chunk;
}

ResponseComplete FullComplete() {
  ResponseComplete complete;
  complete.index = 1;
  complete.output_ids = {4, 5, 6};
  complete.text = "abc";
  complete.finish_reason = FinishReason::kLength;
  complete.logprobs = {Scored(4, -1, 0), Scored(5, -2, 0), Scored(6, -3, 0)};
  complete.usage = {.prompt_tokens = 9,
                    .completion_tokens = 3,
                    .cached_tokens = 4,
                    .ttft_seconds = 0.5,
                    .tpot_seconds = 0.125,
                    .e2e_seconds = 0.75};
  return complete;
}

TEST(ResponseCodec, ChunkRoundTrip) {
  const pb::GenerateResponse proto = ChunkToProto(FullChunk());
  EXPECT_EQ(proto.chunk().completion_tokens(), 2u);
  EXPECT_FALSE(proto.chunk().input_logprobs().token_logprobs(0).has_value());
  EXPECT_EQ(proto.chunk().input_logprobs().top_logprobs_size(), 3);
  const auto back = ResponseFromProto(proto);
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_TRUE(std::holds_alternative<ResponseChunk>(*back));
  EXPECT_TRUE(MessageDifferencer::Equals(ChunkToProto(std::get<ResponseChunk>(*back)), proto));
  EXPECT_EQ(std::get<ResponseChunk>(*back).text_delta, "caf\xc3\xa9");
}

TEST(ResponseCodec, CompleteRoundTrip) {
  ResponseComplete complete = FullComplete();
  for (int kind = 0; kind < 3; ++kind) {
    if (kind == 1) complete.matched_token = 6;
    if (kind == 2) complete.matched_stop = "END";
    const pb::GenerateResponse proto = CompleteToProto(complete);
    EXPECT_EQ(proto.complete().has_matched_token_id(), kind == 1);
    EXPECT_EQ(proto.complete().has_matched_stop_str(), kind == 2);
    const auto back = ResponseFromProto(proto);
    ASSERT_TRUE(back.ok()) << back.status();
    const auto& out = std::get<ResponseComplete>(*back);
    EXPECT_TRUE(MessageDifferencer::Equals(CompleteToProto(out), proto));
    EXPECT_EQ(out.usage.tpot_seconds, 0.125);
  }
}

TEST(ResponseCodec, EveryFinishReason) {
  ResponseComplete complete;
  for (const auto& [reason, name] :
       {std::pair{FinishReason::kStop, "stop"}, std::pair{FinishReason::kLength, "length"},
        std::pair{FinishReason::kAbort, "abort"}}) {
    complete.finish_reason = reason;
    const pb::GenerateResponse proto = CompleteToProto(complete);
    EXPECT_EQ(proto.complete().finish_reason(), name);
    const auto back = ResponseFromProto(proto);
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(std::get<ResponseComplete>(*back).finish_reason, reason);
  }
}

TEST(ResponseCodec, MalformedIsRefused) {
  EXPECT_FALSE(ResponseFromProto(pb::GenerateResponse()).ok());
  pb::GenerateResponse lists;
  lists.mutable_chunk()->mutable_output_logprobs()->add_token_ids(1);
  EXPECT_FALSE(ResponseFromProto(lists).ok());
  pb::GenerateResponse tops = ChunkToProto(FullChunk());
  tops.mutable_chunk()->mutable_output_logprobs()->mutable_top_logprobs(0)->add_values(1);
  EXPECT_FALSE(ResponseFromProto(tops).ok());
  pb::GenerateResponse reason = CompleteToProto(FullComplete());
  reason.mutable_complete()->set_finish_reason("tired");
  const auto result = ResponseFromProto(reason);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(std::string(result.status().message()).find("tired"), std::string::npos);
}

}  // namespace
}  // namespace millrace
