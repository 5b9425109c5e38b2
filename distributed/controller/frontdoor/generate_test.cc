// Answers: text, ids, stops, logprobs, choices; streamed and whole.
#include <string>
#include <vector>

#include "distributed/controller/frontdoor/testing/server_fixture.h"
#include "distributed/wire/error_details.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

namespace pb = ::vllm::grpc::engine;

class GenerateTest : public ServerFixture {
 protected:
  void SetUp() override { StartServer(); }

  // The same request streamed and whole must tell the same.
  ResponseComplete GenerateBothWays(pb::GenerateRequest request) {
    request.set_stream(false);
    const Answer whole = Generate(request);
    request.set_stream(true);
    const Answer streamed = Generate(request);
    EXPECT_TRUE(whole.status.ok()) << whole.status;
    EXPECT_TRUE(streamed.status.ok()) << streamed.status;
    EXPECT_EQ(whole.choices.size(), streamed.choices.size());
    for (const auto& [index, choice] : streamed.choices) {
      EXPECT_EQ(choice.completes.size(), 1u);
      const ResponseComplete& a = choice.end();
      const ResponseComplete& b = whole.choices.at(index).end();
      EXPECT_TRUE(whole.choices.at(index).chunks.empty());
      EXPECT_EQ(choice.streamed_text(), a.text);
      EXPECT_EQ(choice.streamed_ids(), a.output_ids);
      EXPECT_EQ(a.text, b.text);
      EXPECT_EQ(a.output_ids, b.output_ids);
      EXPECT_EQ(a.finish_reason, b.finish_reason);
      EXPECT_EQ(a.matched_stop, b.matched_stop);
      EXPECT_EQ(a.matched_token, b.matched_token);
    }
    return whole.first().end();
  }
};

TEST_F(GenerateTest, EndsAtTheEndToken) {
  const ResponseComplete end = GenerateBothWays(TextRequest("w", 16, false));
  EXPECT_EQ(end.text, "xyz.");
  EXPECT_EQ(end.output_ids, (std::vector<int32_t>{'x', 'y', 'z', '.', kLettersEos}));
  EXPECT_EQ(end.finish_reason, FinishReason::kStop);
  EXPECT_EQ(end.matched_token, kLettersEos);
  EXPECT_EQ(end.usage.prompt_tokens, 2);  // with <bos>
  EXPECT_EQ(end.usage.completion_tokens, 5);
  EXPECT_GT(end.usage.ttft_seconds, 0);
  EXPECT_GE(end.usage.e2e_seconds, end.usage.ttft_seconds);
}

TEST_F(GenerateTest, EndsAtMaxTokens) {
  const ResponseComplete end = GenerateBothWays(TextRequest("a", 3, false));
  EXPECT_EQ(end.text, "bcd");
  EXPECT_EQ(end.finish_reason, FinishReason::kLength);
  EXPECT_FALSE(end.matched_token.has_value());
}

TEST_F(GenerateTest, MaxTokensUnsetIsWhatFits) {
  pb::GenerateRequest request = TextRequest("0", 1, false);
  request.mutable_sampling_params()->clear_max_tokens();
  const Answer answer = Generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.first().end().usage.completion_tokens, 512 - 2);
  EXPECT_EQ(answer.first().end().finish_reason, FinishReason::kLength);
}

TEST_F(GenerateTest, TokenPromptsAreTakenAsTheyAre) {
  pb::GenerateRequest request = TextRequest("", 8, false);
  request.mutable_tokenized()->add_input_ids('w');
  const ResponseComplete end = GenerateBothWays(request);
  EXPECT_EQ(end.text, "xyz.");
  EXPECT_EQ(end.usage.prompt_tokens, 1);
}

TEST_F(GenerateTest, StopStringAcrossTokens) {
  pb::GenerateRequest request = TextRequest("a", 16, true);
  request.mutable_sampling_params()->add_stop("xx");
  request.mutable_sampling_params()->add_stop("fgh");
  const ResponseComplete end = GenerateBothWays(request);
  EXPECT_EQ(end.text, "bcde");
  EXPECT_EQ(end.matched_stop, "fgh");
  EXPECT_EQ(end.finish_reason, FinishReason::kStop);
  EXPECT_EQ(end.output_ids, (std::vector<int32_t>{'b', 'c', 'd', 'e', 'f', 'g', 'h'}));
  request.mutable_sampling_params()->set_include_stop_str_in_output(true);
  EXPECT_EQ(GenerateBothWays(request).text, "bcdefgh");
  EXPECT_TRUE(Eventually([&] { return PagesAreBack(); }));
}

TEST_F(GenerateTest, PartOfAStopStringIsShownInTheEnd) {
  pb::GenerateRequest request = TextRequest("a", 4, true);
  request.mutable_sampling_params()->add_stop("defg");
  const ResponseComplete end = GenerateBothWays(request);
  EXPECT_EQ(end.text, "bcde");
  EXPECT_EQ(end.finish_reason, FinishReason::kLength);
}

TEST_F(GenerateTest, NoStopBeforeMinTokens) {
  pb::GenerateRequest request = TextRequest("0", 30, true);
  request.mutable_sampling_params()->add_stop("3");
  request.mutable_sampling_params()->set_min_tokens(5);
  EXPECT_EQ(GenerateBothWays(request).text, "123456789012");
}

TEST_F(GenerateTest, StopTokenIds) {
  pb::GenerateRequest request = TextRequest("a", 16, true);
  request.mutable_sampling_params()->add_stop_token_ids('e');
  const ResponseComplete end = GenerateBothWays(request);
  EXPECT_EQ(end.text, "bcd");
  EXPECT_EQ(end.matched_token, 'e');
  EXPECT_EQ(end.output_ids.back(), 'e');
  request.mutable_sampling_params()->set_include_stop_str_in_output(true);
  EXPECT_EQ(GenerateBothWays(request).text, "bcde");
}

TEST_F(GenerateTest, IgnoreEosAndSpecialTokens) {
  pb::GenerateRequest request = TextRequest("y", 4, true);
  pb::SamplingParams& s = *request.mutable_sampling_params();
  s.set_ignore_eos(true);
  ResponseComplete end = GenerateBothWays(request);
  EXPECT_EQ(end.text, "z.");
  EXPECT_EQ(end.output_ids, (std::vector<int32_t>{'z', '.', kLettersEos, kLettersEos}));
  EXPECT_EQ(end.finish_reason, FinishReason::kLength);
  s.set_skip_special_tokens(false);
  EXPECT_EQ(GenerateBothWays(request).text, "z.<eos><eos>");
  s.set_spaces_between_special_tokens(true);
  EXPECT_EQ(GenerateBothWays(request).text, "z.<eos><eos>");
}

TEST_F(GenerateTest, WholeCharactersOnly) {
  pb::GenerateRequest request = TextRequest("\xc3\xa9", 5, true);
  const Answer answer = Generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  for (const ResponseChunk& chunk : answer.first().chunks) {
    for (size_t i = 0; i < chunk.text_delta.size(); i += chunk.text_delta[i] == '\xc3' ? 2 : 3) {
      EXPECT_TRUE(chunk.text_delta.substr(i, 2) == "\xc3\xa9" ||
                  chunk.text_delta.substr(i, 3) == "\xef\xbf\xbd");
    }
  }
  // Half a character at the end is shown as a replacement character.
  EXPECT_EQ(answer.first().end().text, "\xc3\xa9\xc3\xa9\xef\xbf\xbd");
  EXPECT_EQ(answer.first().end().output_ids.size(), 5u);
}

TEST_F(GenerateTest, Choices) {
  pb::GenerateRequest request = TextRequest("a", 9, true);
  request.mutable_sampling_params()->set_n(16);
  request.mutable_sampling_params()->add_stop("hi");
  GenerateBothWays(request);
  const Answer answer = Generate(request);
  ASSERT_EQ(answer.choices.size(), 16u);
  for (const auto& [index, choice] : answer.choices) EXPECT_EQ(choice.end().text, "bcdefg");
  EXPECT_TRUE(Eventually([&] { return PagesAreBack(); }));
}

TEST_F(GenerateTest, Logprobs) {
  pb::GenerateRequest request = TextRequest("ab", 4, true);
  request.mutable_sampling_params()->set_logprobs(2);
  request.mutable_sampling_params()->set_prompt_logprobs(3);
  const Answer streamed = Generate(request);
  ASSERT_TRUE(streamed.status.ok()) << streamed.status;
  std::vector<ScoredToken> scores;
  for (const ResponseChunk& chunk : streamed.first().chunks) {
    EXPECT_EQ(chunk.logprobs.size(), chunk.token_ids.size());
    EXPECT_EQ(chunk.prompt_scores.has_value(), &chunk == &streamed.first().chunks[0]);
    scores.insert(scores.end(), chunk.logprobs.begin(), chunk.logprobs.end());
  }
  EXPECT_TRUE(streamed.first().end().logprobs.empty());
  ASSERT_EQ(scores.size(), 4u);
  EXPECT_EQ(scores[0].token.token, 'c');
  EXPECT_EQ(scores[0].token.logprob, -0.5f * ('c' % 7));
  EXPECT_EQ(scores[0].top.size(), 2u);
  request.set_stream(false);
  const Answer whole = Generate(request);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  const ResponseComplete& end = whole.first().end();
  EXPECT_EQ(end.logprobs.size(), 4u);
  ASSERT_TRUE(end.prompt_scores.has_value());
  EXPECT_EQ(end.prompt_scores->first_token, kLettersBos);
  ASSERT_EQ(end.prompt_scores->rest.size(), 2u);
  EXPECT_EQ(end.prompt_scores->rest[1].token.token, 'b');
  EXPECT_EQ(end.prompt_scores->rest[1].top.size(), 3u);
}

TEST_F(GenerateTest, LogprobsOfTheTokenAlone) {
  pb::GenerateRequest request = TextRequest("a", 2, false);
  request.mutable_sampling_params()->set_logprobs(0);
  const Answer answer = Generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  ASSERT_EQ(answer.first().end().logprobs.size(), 2u);
  EXPECT_TRUE(answer.first().end().logprobs[0].top.empty());
}

TEST_F(GenerateTest, TruncationKeepsTheEnd) {
  pb::GenerateRequest request = TextRequest("123abcw", 8, false);
  request.mutable_sampling_params()->set_truncate_prompt_tokens(2);
  ResponseComplete end = GenerateBothWays(request);
  EXPECT_EQ(end.usage.prompt_tokens, 2);
  EXPECT_EQ(end.text, "xyz.");
  request.set_text(std::string(5000, 'q') + "w");
  request.mutable_sampling_params()->set_truncate_prompt_tokens(-1);
  end = GenerateBothWays(request);
  EXPECT_EQ(end.usage.prompt_tokens, 512 - 8);
  EXPECT_EQ(end.text, "xyz.");
}

TEST_F(GenerateTest, ContextIsNamedWithBothNumbers) {
  Answer answer = Generate(TextRequest(std::string(100, 'a'), 500, false));
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(answer.status.message());
  EXPECT_NE(message.find("101 tokens"), std::string::npos) << message;
  EXPECT_NE(message.find("max_tokens is 500"), std::string::npos) << message;
  EXPECT_NE(message.find("512"), std::string::npos) << message;
  EXPECT_EQ(GetErrorFacts(answer.status).field, "sampling_params.max_tokens");
  answer = Generate(TextRequest(std::string(511, 'a'), 1, false));
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetErrorFacts(answer.status).field, "text");
  // Long enough to be refused by its bytes, before any tokenizer runs.
  answer = Generate(TextRequest(std::string(1 << 20, 'a'), 1, false));
  EXPECT_EQ(GetErrorFacts(answer.status).field, "text");
  pb::GenerateRequest request = TextRequest(std::string(509, 'a'), 1, false);
  request.mutable_sampling_params()->clear_max_tokens();
  request.mutable_sampling_params()->set_min_tokens(4);
  EXPECT_EQ(GetErrorFacts(Generate(request).status).field, "sampling_params.min_tokens");
}

TEST_F(GenerateTest, RepeatedPromptsComeFromTheCache) {
  const std::string prompt(100, 'a');
  const Answer cold = Generate(TextRequest(prompt, 3, false));
  const Answer warm = Generate(TextRequest(prompt, 3, false));
  ASSERT_TRUE(warm.status.ok()) << warm.status;
  EXPECT_EQ(cold.first().end().usage.cached_tokens, 0);
  EXPECT_EQ(warm.first().end().usage.cached_tokens, 96);
  pb::GenerateRequest salted = TextRequest(prompt, 3, false);
  salted.set_cache_salt("other tenant");
  EXPECT_EQ(Generate(salted).first().end().usage.cached_tokens, 0);
}

TEST_F(GenerateTest, ModelWithoutChatTemplateRefusesMessages) {
  pb::GenerateRequest request = TextRequest("", 3, false);
  request.clear_text();
  pb::ChatMessage* message = request.add_messages();
  message->set_role("user");
  message->set_content("hi");
  const Answer answer = Generate(request);
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kFailedPrecondition) << answer.status;
}

}  // namespace
}  // namespace millrace
