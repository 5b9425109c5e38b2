#include "distributed/controller/frontdoor/admission.h"

#include <string>
#include <vector>

#include "distributed/controller/frontdoor/testing/letters.h"
#include "distributed/wire/error_details.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

ServedModel Model() {
  const std::string folder = WriteLettersFolder(::testing::TempDir());
  auto model = LoadServedModel(folder, folder);
  EXPECT_TRUE(model.ok()) << model.status();
  model->max_model_len = 100;
  return *std::move(model);
}

TEST(Admission, ModelsDefaultsFillWhatTheClientLeftOut) {
  ServedModel model = Model();
  model.defaults.temperature = 0.25;
  model.defaults.top_p = 0.5;
  model.defaults.top_k = 7;
  model.defaults.repetition_penalty = 1.25;
  const auto s = ResolveSampling(ClientRequest(), 40, model, 99);
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_EQ(s->temperature, 0.25f);
  EXPECT_EQ(s->top_p, 0.5f);
  EXPECT_EQ(s->top_k, 7);
  EXPECT_EQ(s->repetition_penalty, 1.25f);
  EXPECT_EQ(s->min_p, 0);
  EXPECT_EQ(s->max_tokens, 60);
  EXPECT_EQ(s->seed, 99u);
  EXPECT_EQ(s->stop_token_ids, std::vector<int32_t>{kLettersEos});
}

TEST(Admission, WithoutDefaultsTheNeutralValues) {
  ServedModel model = Model();
  model.defaults = GenerationDefaults();
  const auto s = ResolveSampling(ClientRequest(), 1, model, 0);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->temperature, 1.0f);
  EXPECT_EQ(s->top_p, 1.0f);
  EXPECT_EQ(s->top_k, 0);
  EXPECT_EQ(s->repetition_penalty, 1.0f);
}

TEST(Admission, TheClientsValuesWin) {
  ServedModel model = Model();
  model.defaults.top_k = 7;
  ClientRequest request;
  request.sampling.temperature = 0.0f;
  request.sampling.top_k = kLettersVocab;  // all
  request.sampling.seed = 5;
  request.sampling.max_tokens = 60;
  request.sampling.ignore_eos = true;
  request.sampling.stop_token_ids = {9, 3, 9};
  const auto s = ResolveSampling(request, 40, model, 99);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->temperature, 0);
  EXPECT_EQ(s->top_k, 0);
  EXPECT_EQ(s->seed, 5u);
  EXPECT_EQ(s->max_tokens, 60);
  EXPECT_EQ(s->stop_token_ids, (std::vector<int32_t>{3, 9}));
  request.sampling.max_tokens = 61;
  EXPECT_EQ(ResolveSampling(request, 40, model, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Admission, StopIdsOfBothFiles) {
  ServedModel model = Model();
  model.defaults.eos_token_ids = {260, kLettersEos};
  const auto s = ResolveSampling(ClientRequest(), 1, model, 0);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->stop_token_ids, (std::vector<int32_t>{kLettersEos, 260}));
}

TEST(Admission, ChatIsRenderedAndTextInItIsOnlyText) {
  ServedModel model = Model();
  model.chat = ChatTemplate();
  ClientRequest request;
  request.prompt = ChatPrompt{{.role = "user", .content = "say <eos>"}};
  const auto ids = PromptIds(request, model);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(*ids, *EncodeChat(*model.chat, *model.tokenizer, std::get<ChatPrompt>(request.prompt),
                              request.chat));
  for (int32_t id : *ids) EXPECT_NE(id, kLettersEos);
  request.prompt = ChatPrompt{{.role = "wizard", .content = "hi"}};
  const absl::Status status = PromptIds(request, model).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetErrorFacts(status).field, "messages");
}

TEST(Admission, WithoutATokenizerOnlyIds) {
  ServedModel model = Model();
  model.tokenizer = nullptr;
  ClientRequest request;
  request.prompt = TextPrompt("hi");
  EXPECT_EQ(PromptIds(request, model).status().code(), absl::StatusCode::kFailedPrecondition);
  request.prompt = TokenPrompt{1, 2};
  EXPECT_EQ(*PromptIds(request, model), (std::vector<int32_t>{1, 2}));
  request.text.stop = {"x"};
  EXPECT_EQ(PromptIds(request, model).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Admission, TokenizerWithMoreIdsThanTheModel) {
  ServedModel model = Model();
  model.config.vocab_size = 100;
  ClientRequest request;
  request.prompt = TextPrompt("w");
  EXPECT_EQ(PromptIds(request, model).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace millrace
