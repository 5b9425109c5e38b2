// A table over every field of GenerateRequest and SamplingParams and every cap: what is refused, by
// which code and field, and what is taken over.
#include "distributed/wire/request_codec.h"

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "distributed/wire/error_details.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

namespace pb = ::vllm::grpc::engine;

constexpr RequestLimits kLimits = {.vocab_size = 1000, .max_model_len = 64};

pb::GenerateRequest Valid() {
  pb::GenerateRequest request;
  request.set_request_id("r1");
  request.mutable_tokenized()->add_input_ids(5);
  request.mutable_sampling_params();
  return request;
}

// `text` (in protobuf's text format) is merged into a valid message. `field` is the one that is
// refused; "" = accepted.
struct Case {
  std::string text;
  std::string field;
};

const Case kSamplingCases[] = {
    {"temperature: 0", ""},
    {"temperature: 100", ""},
    {"temperature: -0.1", "temperature"},
    {"temperature: nan", "temperature"},
    {"temperature: inf", "temperature"},
    {"temperature: 101", "temperature"},
    {"top_p: 1", ""},
    {"top_p: 1.01", "top_p"},
    {"top_p: -0.5", "top_p"},
    {"top_p: nan", "top_p"},
    {"top_k: 4294967295", ""},
    {"min_p: 1", ""},
    {"min_p: -1", "min_p"},
    {"min_p: 2", "min_p"},
    {"min_p: nan", "min_p"},
    {"frequency_penalty: 2", ""},
    {"frequency_penalty: 2.1", "frequency_penalty"},
    {"frequency_penalty: nan", "frequency_penalty"},
    {"presence_penalty: -2", ""},
    {"presence_penalty: -2.1", "presence_penalty"},
    {"presence_penalty: inf", "presence_penalty"},
    {"repetition_penalty: 1.5", ""},
    {"repetition_penalty: -1", "repetition_penalty"},
    {"repetition_penalty: nan", "repetition_penalty"},
    {"repetition_penalty: 101", "repetition_penalty"},
    {"n: 0", ""},
    {"n: 16", ""},
    {"n: 17", "n"},
    {"n: 4294967295", "n"},
    {"max_tokens: 1", ""},
    {"max_tokens: 64", ""},
    {"max_tokens: 0", "max_tokens"},
    {"max_tokens: 65", "max_tokens"},
    {"max_tokens: 4294967295", "max_tokens"},
    {"min_tokens: 64", ""},
    {"min_tokens: 65", "min_tokens"},
    {"min_tokens: 3 max_tokens: 2", "min_tokens"},
    {"logprobs: 0", ""},
    {"logprobs: 20", ""},
    {"logprobs: 21", "logprobs"},
    {"logprobs: -1", "logprobs"},
    {"prompt_logprobs: 20", ""},
    {"prompt_logprobs: 21", "prompt_logprobs"},
    {"prompt_logprobs: -2", "prompt_logprobs"},
    {"seed: -1", ""},
    {"truncate_prompt_tokens: -1", ""},
    {"truncate_prompt_tokens: 64", ""},
    {"truncate_prompt_tokens: 0", "truncate_prompt_tokens"},
    {"truncate_prompt_tokens: -2", "truncate_prompt_tokens"},
    {"truncate_prompt_tokens: 65", "truncate_prompt_tokens"},
    {"ignore_eos: true", ""},
    {"skip_special_tokens: true", ""},
    {"spaces_between_special_tokens: true", ""},
    {"include_stop_str_in_output: true", ""},
    {"stop: 'x' stop: ''", "stop[1]"},
    {"stop_token_ids: 999", ""},
    {"stop_token_ids: 1000", "stop_token_ids[0]"},
    {"stop_token_ids: 4294967295", "stop_token_ids[0]"},
    {"logit_bias { key: 999 value: -100 }", ""},
    {"logit_bias { key: 1000 value: 1 }", "logit_bias[1000]"},
    {"logit_bias { key: -1 value: 1 }", "logit_bias[-1]"},
    {"logit_bias { key: 1 value: nan }", "logit_bias[1]"},
    {"logit_bias { key: 1 value: 101 }", "logit_bias[1]"},
};

// Refused with UNIMPLEMENTED.
const Case kConstraintCases[] = {
    {"json_schema: '{}'", "json_schema"},
    {"regex: '(a+)+$'", "regex"},
    {"grammar: 'g'", "grammar"},
    {"structural_tag: 't'", "structural_tag"},
    {"json_object: true", "json_object"},
    {"json_object: false", ""},
    {"choice { choices: 'a' }", "choice"},
    {"grammar_from_first_token: true", "grammar_from_first_token"},
};

const Case kRequestCases[] = {
    {"request_id: ''", ""},
    {"request_id: 'a\\nb'", "request_id"},
    {"request_id: 'a\\033[31m'", "request_id"},
    {"request_id: '\\303\\251'", "request_id"},
    {"tokenized { original_text: 'x' }", ""},
    {"tokenized { input_ids: 999 }", ""},
    {"tokenized { input_ids: 1000 }", "tokenized.input_ids[1]"},
    {"tokenized { input_ids: 4294967295 }", "tokenized.input_ids[1]"},
    {"text: 'hello'", ""},
    {"text: ''", "text"},
    {"stream: true", ""},
    {"kv_transfer_params {}", "kv_transfer_params"},
    {"kv_transfer_params_json: '{}'", "kv_transfer_params_json"},
    {"mm_inputs {}", "mm_inputs"},
    {"extra_mm_inputs {}", "extra_mm_inputs"},
    {"media_refs {}", "media_refs"},
    {"data_parallel_rank: 0", ""},
    {"data_parallel_rank: 1", "data_parallel_rank"},
    {"data_parallel_rank: -1", "data_parallel_rank"},
    {"cache_salt: 's'", ""},
    {"messages { role: 'user' }", "messages"},            // beside tokenized
    {"chat_options { thinking: true }", "chat_options"},  // without messages
};

std::string Repeated(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text + " ";
  return all;
}

// At and past the caps on lengths.
std::vector<Case> LongSamplingCases() {
  std::string bias;
  for (int i = 0; i < 1025; ++i) bias += "logit_bias { key: " + std::to_string(i) + " value: 1 } ";
  return {
      {Repeated(16, "stop: 'x'"), ""},
      {Repeated(17, "stop: 'x'"), "stop"},
      {"stop: '" + std::string(256, 'x') + "'", ""},
      {"stop: '" + std::string(257, 'x') + "'", "stop[0]"},
      {Repeated(128, "stop_token_ids: 1"), ""},
      {Repeated(129, "stop_token_ids: 1"), "stop_token_ids"},
      {bias, "logit_bias"},
  };
}

std::vector<Case> LongRequestCases() {
  const std::string truncate = "sampling_params { truncate_prompt_tokens: 8 }";
  return {
      {"request_id: '" + std::string(128, 'i') + "'", ""},
      {"request_id: '" + std::string(129, 'i') + "'", "request_id"},
      {"cache_salt: '" + std::string(256, 's') + "'", ""},
      {"cache_salt: '" + std::string(257, 's') + "'", "cache_salt"},
      {"tokenized { " + Repeated(62, "input_ids: 1") + "}", ""},
      {"tokenized { " + Repeated(63, "input_ids: 1") + "}", "tokenized.input_ids"},
      {"tokenized { " + Repeated(63, "input_ids: 1") + "} " + truncate, ""},
  };
}

void Merge(const std::string& text, google::protobuf::Message& message) {
  ASSERT_TRUE(google::protobuf::TextFormat::MergeFromString(text, &message)) << text;
}

void Expect(const pb::GenerateRequest& request, const std::string& field,
            absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::StatusOr<ClientRequest> result = RequestFromProto(request, kLimits);
  if (field.empty()) {
    EXPECT_TRUE(result.ok()) << result.status();
    return;
  }
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), code) << result.status();
  EXPECT_EQ(GetErrorFacts(result.status()).field, field);
  EXPECT_EQ(std::string(result.status().message()).rfind(field + ": ", 0), 0u) << result.status();
}

void ExpectSampling(const Case& c, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  SCOPED_TRACE(c.text.substr(0, 60));
  pb::GenerateRequest request = Valid();
  Merge(c.text, *request.mutable_sampling_params());
  Expect(request, c.field.empty() ? "" : "sampling_params." + c.field, code);
}

void ExpectRequest(const Case& c) {
  SCOPED_TRACE(c.text.substr(0, 60));
  pb::GenerateRequest request = Valid();
  Merge(c.text, request);
  Expect(request, c.field);
}

TEST(RequestCodec, EveryFieldAndCap) {
  for (const Case& c : kSamplingCases) ExpectSampling(c);
  for (const Case& c : LongSamplingCases()) ExpectSampling(c);
  for (const Case& c : kConstraintCases) ExpectSampling(c, absl::StatusCode::kUnimplemented);
  for (const Case& c : kRequestCases) ExpectRequest(c);
  for (const Case& c : LongRequestCases()) ExpectRequest(c);
}

TEST(RequestCodec, PromptIsNeeded) {
  pb::GenerateRequest request = Valid();
  request.mutable_tokenized()->clear_input_ids();
  Expect(request, "tokenized.input_ids");
  request.clear_tokenized();
  Expect(request, "input");
}

TEST(RequestCodec, Messages) {
  pb::GenerateRequest request = Valid();
  request.clear_tokenized();
  pb::ChatMessage* message = request.add_messages();
  message->set_content("hi");
  Expect(request, "messages[0].role");
  message->set_role("user");
  Expect(request, "");
  message->set_fields_json(std::string(size_t{1} << 20, ' '));
  Expect(request, "");
  request.add_messages()->set_role("user");
  request.mutable_messages(1)->set_fields_json("{");
  Expect(request, "messages[1].fields_json");
  request.mutable_messages(1)->clear_fields_json();
  while (request.messages_size() < 1025) request.add_messages()->set_role("user");
  Expect(request, "messages");
}

// The tables above have to grow with the proto.
TEST(RequestCodec, TablesCoverEveryField) {
  std::set<std::string> seen;
  const auto note = [&seen](const google::protobuf::Message& message) {
    std::vector<const google::protobuf::FieldDescriptor*> fields;
    message.GetReflection()->ListFields(message, &fields);
    for (const auto* field : fields) seen.insert(field->full_name());
  };
  for (const Case& c : kSamplingCases) {
    pb::SamplingParams message;
    Merge(c.text, message);
    note(message);
  }
  for (const Case& c : kConstraintCases) {
    pb::SamplingParams message;
    Merge(c.text, message);
    note(message);
  }
  for (const Case& c : kRequestCases) {
    pb::GenerateRequest message = Valid();
    Merge(c.text, message);
    note(message);
  }
  for (const auto* type : {pb::GenerateRequest::descriptor(), pb::SamplingParams::descriptor()}) {
    for (int i = 0; i < type->field_count(); ++i) {
      EXPECT_TRUE(seen.count(type->field(i)->full_name())) << type->field(i)->full_name();
    }
  }
}

TEST(RequestCodec, ZeroMeansUnset) {
  pb::GenerateRequest request = Valid();
  const auto result = RequestFromProto(request, kLimits);
  ASSERT_TRUE(result.ok()) << result.status();
  const RequestedSampling& s = result->sampling;
  EXPECT_FALSE(s.temperature.has_value());
  EXPECT_FALSE(s.top_p.has_value());
  EXPECT_FALSE(s.top_k.has_value());
  EXPECT_FALSE(s.min_p.has_value());
  EXPECT_FALSE(s.repetition_penalty.has_value());
  EXPECT_FALSE(s.max_tokens.has_value());
  EXPECT_FALSE(s.seed.has_value());
  EXPECT_EQ(s.num_logprobs, -1);
  EXPECT_EQ(s.num_prompt_logprobs, -1);
  EXPECT_EQ(result->n, 1);
}

TEST(RequestCodec, NegativeSeedCountsByItsBits) {
  pb::GenerateRequest request = Valid();
  request.mutable_sampling_params()->set_seed(-1);
  const auto result = RequestFromProto(request, kLimits);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->sampling.seed, uint64_t{0xFFFFFFFF});
}

TEST(RequestCodec, TopKBeyondTheVocabularyMeansAll) {
  pb::GenerateRequest request = Valid();
  request.mutable_sampling_params()->set_top_k(4294967295u);
  const auto result = RequestFromProto(request, kLimits);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->sampling.top_k, 1000);
}

ClientRequest Full() {
  ClientRequest r;
  r.request_id = "all fields";
  r.prompt = TokenPrompt{1, 2, 3};
  r.sampling.temperature = 0.5f;
  r.sampling.top_p = 0.9f;
  r.sampling.top_k = 40;
  r.sampling.min_p = 0.05f;
  r.sampling.repetition_penalty = 1.1f;
  r.sampling.frequency_penalty = -0.5f;
  r.sampling.presence_penalty = 0.25f;
  r.sampling.max_tokens = 20;
  r.sampling.min_tokens = 3;
  r.sampling.stop_token_ids = {7, 8};
  r.sampling.logit_bias = {{4, -1.5f}, {900, 2.0f}};
  r.sampling.num_logprobs = 2;
  r.sampling.num_prompt_logprobs = 0;
  r.sampling.seed = 0xFFFFFFF0u;
  r.sampling.ignore_eos = true;
  r.text = {.stop = {"\n", "END"},
            .include_stop = true,
            .skip_special_tokens = true,
            .spaces_between_special_tokens = true};
  r.n = 3;
  r.stream = true;
  r.truncate_prompt_tokens = 2;
  r.cache_salt = "tenant";
  return r;
}

TEST(RequestCodec, RoundTrip) {
  std::vector<ClientRequest> requests(4, Full());
  requests[1].prompt = TextPrompt("hello");
  requests[2].prompt =
      ChatPrompt{{.role = "system", .content = "be brief", .fields_json = R"({"tools": []})"},
                 {.role = "user", .content = "hi"}};
  requests[2].chat = {.thinking = false, .reasoning_effort = "max"};
  requests[3] = ClientRequest();
  requests[3].prompt = TokenPrompt{0};
  for (const ClientRequest& request : requests) {
    const pb::GenerateRequest once = RequestToProto(request);
    const auto back = RequestFromProto(once, kLimits);
    ASSERT_TRUE(back.ok()) << back.status();
    // Every field of the struct is in the proto, so equal protos mean equal structs.
    const pb::GenerateRequest twice = RequestToProto(*back);
    std::string a;
    std::string b;
    google::protobuf::TextFormat::PrintToString(once, &a);
    google::protobuf::TextFormat::PrintToString(twice, &b);
    EXPECT_EQ(a, b);
    EXPECT_EQ(back->prompt, request.prompt);
    EXPECT_EQ(back->chat, request.chat);
  }
  // And each field of the full struct differs from its default on the wire.
  const pb::GenerateRequest full = RequestToProto(requests[0]);
  std::vector<const google::protobuf::FieldDescriptor*> set;
  full.sampling_params().GetReflection()->ListFields(full.sampling_params(), &set);
  EXPECT_EQ(set.size(), 21u);
  EXPECT_EQ(full.sampling_params().seed(), -16);
}

TEST(RequestCodec, HugeListsAreRefusedByTheirLength) {
  pb::GenerateRequest request = Valid();
  for (int i = 0; i < 1 << 20; ++i) request.mutable_tokenized()->add_input_ids(4294967295u);
  const auto result = RequestFromProto(request, kLimits);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(GetErrorFacts(result.status()).field, "tokenized.input_ids");
}

}  // namespace
}  // namespace millrace
