// A table over every field of GenerateRequest and SamplingParams and every cap: what is refused, by
// which code and field, and what is taken over.
#include "distributed/wire/request_codec.h"

#include <cmath>
#include <functional>
#include <limits>
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
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

pb::GenerateRequest Valid() {
  pb::GenerateRequest request;
  request.set_request_id("r1");
  request.mutable_tokenized()->add_input_ids(5);
  request.mutable_sampling_params();
  return request;
}

struct Case {
  std::string name;
  std::function<void(pb::GenerateRequest&, pb::SamplingParams&)> change;
  std::string field;  // "" = accepted
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

#define CHANGE [](pb::GenerateRequest & r, pb::SamplingParams & s)

void Repeat(int count, const std::function<void(int)>& body) {
  for (int i = 0; i < count; ++i) body(i);
}

std::vector<Case> FloatCases() {
  const std::string p = "sampling_params.";
  return {
      {"temperature 0", CHANGE { s.set_temperature(0); }, ""},
      {"temperature 100", CHANGE { s.set_temperature(100); }, ""},
      {"temperature negative", CHANGE { s.set_temperature(-0.1f); }, p + "temperature"},
      {"temperature nan", CHANGE { s.set_temperature(kNan); }, p + "temperature"},
      {"temperature inf", CHANGE { s.set_temperature(kInf); }, p + "temperature"},
      {"temperature 101", CHANGE { s.set_temperature(101); }, p + "temperature"},
      {"top_p 1", CHANGE { s.set_top_p(1); }, ""},
      {"top_p 1.01", CHANGE { s.set_top_p(1.01f); }, p + "top_p"},
      {"top_p negative", CHANGE { s.set_top_p(-0.5f); }, p + "top_p"},
      {"top_p nan", CHANGE { s.set_top_p(kNan); }, p + "top_p"},
      {"min_p 1", CHANGE { s.set_min_p(1); }, ""},
      {"min_p negative", CHANGE { s.set_min_p(-1); }, p + "min_p"},
      {"min_p 2", CHANGE { s.set_min_p(2); }, p + "min_p"},
      {"min_p nan", CHANGE { s.set_min_p(kNan); }, p + "min_p"},
      {"frequency 2", CHANGE { s.set_frequency_penalty(2); }, ""},
      {"frequency 2.1", CHANGE { s.set_frequency_penalty(2.1f); }, p + "frequency_penalty"},
      {"frequency nan", CHANGE { s.set_frequency_penalty(kNan); }, p + "frequency_penalty"},
      {"presence -2", CHANGE { s.set_presence_penalty(-2); }, ""},
      {"presence -2.1", CHANGE { s.set_presence_penalty(-2.1f); }, p + "presence_penalty"},
      {"presence inf", CHANGE { s.set_presence_penalty(kInf); }, p + "presence_penalty"},
      {"repetition 1.5", CHANGE { s.set_repetition_penalty(1.5f); }, ""},
      {"repetition negative", CHANGE { s.set_repetition_penalty(-1); }, p + "repetition_penalty"},
      {"repetition nan", CHANGE { s.set_repetition_penalty(kNan); }, p + "repetition_penalty"},
      {"repetition 101", CHANGE { s.set_repetition_penalty(101); }, p + "repetition_penalty"},
  };
}

std::vector<Case> CountCases() {
  const std::string p = "sampling_params.";
  return {
      {"top_k any", CHANGE { s.set_top_k(4294967295u); }, ""},
      {"n 0", CHANGE { s.set_n(0); }, ""},
      {"n 16", CHANGE { s.set_n(16); }, ""},
      {"n 17", CHANGE { s.set_n(17); }, p + "n"},
      {"n huge", CHANGE { s.set_n(4294967295u); }, p + "n"},
      {"max_tokens 1", CHANGE { s.set_max_tokens(1); }, ""},
      {"max_tokens context", CHANGE { s.set_max_tokens(64); }, ""},
      {"max_tokens 0", CHANGE { s.set_max_tokens(0); }, p + "max_tokens"},
      {"max_tokens 65", CHANGE { s.set_max_tokens(65); }, p + "max_tokens"},
      {"max_tokens huge", CHANGE { s.set_max_tokens(4294967295u); }, p + "max_tokens"},
      {"min_tokens", CHANGE { s.set_min_tokens(64); }, ""},
      {"min_tokens 65", CHANGE { s.set_min_tokens(65); }, p + "min_tokens"},
      {"min above max",
       CHANGE {
         s.set_min_tokens(3);
         s.set_max_tokens(2);
       },
       p + "min_tokens"},
      {"logprobs 0", CHANGE { s.set_logprobs(0); }, ""},
      {"logprobs 20", CHANGE { s.set_logprobs(20); }, ""},
      {"logprobs 21", CHANGE { s.set_logprobs(21); }, p + "logprobs"},
      {"logprobs all", CHANGE { s.set_logprobs(-1); }, p + "logprobs"},
      {"prompt_logprobs 20", CHANGE { s.set_prompt_logprobs(20); }, ""},
      {"prompt_logprobs 21", CHANGE { s.set_prompt_logprobs(21); }, p + "prompt_logprobs"},
      {"prompt_logprobs -2", CHANGE { s.set_prompt_logprobs(-2); }, p + "prompt_logprobs"},
      {"seed negative", CHANGE { s.set_seed(-1); }, ""},
      {"truncate -1", CHANGE { s.set_truncate_prompt_tokens(-1); }, ""},
      {"truncate 64", CHANGE { s.set_truncate_prompt_tokens(64); }, ""},
      {"truncate 0", CHANGE { s.set_truncate_prompt_tokens(0); }, p + "truncate_prompt_tokens"},
      {"truncate -2", CHANGE { s.set_truncate_prompt_tokens(-2); }, p + "truncate_prompt_tokens"},
      {"truncate 65", CHANGE { s.set_truncate_prompt_tokens(65); }, p + "truncate_prompt_tokens"},
      {"ignore_eos", CHANGE { s.set_ignore_eos(true); }, ""},
      {"skip", CHANGE { s.set_skip_special_tokens(true); }, ""},
      {"spaces", CHANGE { s.set_spaces_between_special_tokens(true); }, ""},
      {"include stop", CHANGE { s.set_include_stop_str_in_output(true); }, ""},
  };
}

std::vector<Case> ListCases() {
  const std::string p = "sampling_params.";
  return {
      {"stop 16", CHANGE { Repeat(16, [&](int) { s.add_stop("x"); }); }, ""},
      {"stop 17", CHANGE { Repeat(17, [&](int) { s.add_stop("x"); }); }, p + "stop"},
      {"stop 256 B", CHANGE { s.add_stop(std::string(256, 'x')); }, ""},
      {"stop 257 B", CHANGE { s.add_stop(std::string(257, 'x')); }, p + "stop[0]"},
      {"stop empty",
       CHANGE {
         s.add_stop("x");
         s.add_stop("");
       },
       p + "stop[1]"},
      {"stop id", CHANGE { s.add_stop_token_ids(999); }, ""},
      {"stop id vocab", CHANGE { s.add_stop_token_ids(1000); }, p + "stop_token_ids[0]"},
      {"stop id max", CHANGE { s.add_stop_token_ids(4294967295u); }, p + "stop_token_ids[0]"},
      {"stop ids 128", CHANGE { Repeat(128, [&](int i) { s.add_stop_token_ids(i); }); }, ""},
      {"stop ids 129", CHANGE { Repeat(129, [&](int i) { s.add_stop_token_ids(i); }); },
       p + "stop_token_ids"},
      {"bias", CHANGE { (*s.mutable_logit_bias())[999] = -100; }, ""},
      {"bias vocab", CHANGE { (*s.mutable_logit_bias())[1000] = 1; }, p + "logit_bias[1000]"},
      {"bias negative id", CHANGE { (*s.mutable_logit_bias())[-1] = 1; }, p + "logit_bias[-1]"},
      {"bias nan", CHANGE { (*s.mutable_logit_bias())[1] = kNan; }, p + "logit_bias[1]"},
      {"bias 101", CHANGE { (*s.mutable_logit_bias())[1] = 101; }, p + "logit_bias[1]"},
      {"bias 1025",
       CHANGE { Repeat(1025, [&](int i) { (*s.mutable_logit_bias())[i] = 1; }); }, p + "logit_bias"},
  };
}

std::vector<Case> ConstraintCases() {
  const std::string p = "sampling_params.";
  constexpr auto kCode = absl::StatusCode::kUnimplemented;
  return {
      {"json_schema", CHANGE { s.set_json_schema("{}"); }, p + "json_schema", kCode},
      {"regex", CHANGE { s.set_regex("(a+)+$"); }, p + "regex", kCode},
      {"grammar", CHANGE { s.set_grammar("g"); }, p + "grammar", kCode},
      {"structural_tag", CHANGE { s.set_structural_tag("t"); }, p + "structural_tag", kCode},
      {"json_object", CHANGE { s.set_json_object(true); }, p + "json_object", kCode},
      {"json_object false", CHANGE { s.set_json_object(false); }, ""},
      {"choice", CHANGE { s.mutable_choice()->add_choices("a"); }, p + "choice", kCode},
      {"first token", CHANGE { s.set_grammar_from_first_token(true); },
       p + "grammar_from_first_token", kCode},
  };
}

std::vector<Case> RequestCases() {
  return {
      {"id empty", CHANGE { r.set_request_id(""); }, ""},
      {"id 128", CHANGE { r.set_request_id(std::string(128, 'i')); }, ""},
      {"id 129", CHANGE { r.set_request_id(std::string(129, 'i')); }, "request_id"},
      {"id newline", CHANGE { r.set_request_id("a\nb"); }, "request_id"},
      {"id escape", CHANGE { r.set_request_id("a\x1b[31m"); }, "request_id"},
      {"id utf8", CHANGE { r.set_request_id("\xc3\xa9"); }, "request_id"},
      {"no input", CHANGE { r.clear_tokenized(); }, "input"},
      {"no ids", CHANGE { r.mutable_tokenized()->clear_input_ids(); }, "tokenized.input_ids"},
      {"original text", CHANGE { r.mutable_tokenized()->set_original_text("x"); }, ""},
      {"id vocab", CHANGE { r.mutable_tokenized()->add_input_ids(1000); },
       "tokenized.input_ids[1]"},
      {"id max", CHANGE { r.mutable_tokenized()->add_input_ids(4294967295u); },
       "tokenized.input_ids[1]"},
      {"63 ids", CHANGE { Repeat(62, [&](int) { r.mutable_tokenized()->add_input_ids(1); }); }, ""},
      {"64 ids", CHANGE { Repeat(63, [&](int) { r.mutable_tokenized()->add_input_ids(1); }); },
       "tokenized.input_ids"},
      {"64 ids, truncated",
       CHANGE {
         Repeat(63, [&](int) { r.mutable_tokenized()->add_input_ids(1); });
         s.set_truncate_prompt_tokens(8);
       },
       ""},
      {"text", CHANGE { r.set_text("hello"); }, ""},
      {"text empty", CHANGE { r.set_text(""); }, "text"},
      {"stream", CHANGE { r.set_stream(true); }, ""},
      {"kv", CHANGE { r.mutable_kv_transfer_params(); }, "kv_transfer_params"},
      {"kv json", CHANGE { r.set_kv_transfer_params_json("{}"); }, "kv_transfer_params_json"},
      {"media", CHANGE { r.mutable_mm_inputs(); }, "mm_inputs"},
      {"more media", CHANGE { r.add_extra_mm_inputs(); }, "extra_mm_inputs"},
      {"media refs", CHANGE { r.mutable_media_refs(); }, "media_refs"},
      {"rank 0", CHANGE { r.set_data_parallel_rank(0); }, ""},
      {"rank 1", CHANGE { r.set_data_parallel_rank(1); }, "data_parallel_rank"},
      {"rank -1", CHANGE { r.set_data_parallel_rank(-1); }, "data_parallel_rank"},
      {"salt", CHANGE { r.set_cache_salt(std::string(256, 's')); }, ""},
      {"salt 257", CHANGE { r.set_cache_salt(std::string(257, 's')); }, "cache_salt"},
      {"both", CHANGE { r.add_messages()->set_role("user"); }, "messages"},
      {"chat",
       CHANGE {
         r.clear_tokenized();
         r.add_messages()->set_role("user");
       },
       ""},
      {"chat without role",
       CHANGE {
         r.clear_tokenized();
         r.add_messages()->set_content("hi");
       },
       "messages[0].role"},
      {"1025 messages",
       CHANGE {
         r.clear_tokenized();
         Repeat(1025, [&](int) { r.add_messages()->set_role("user"); });
       },
       "messages"},
  };
}

std::vector<Case> AllCases() {
  std::vector<Case> all;
  for (const auto& cases :
       {FloatCases(), CountCases(), ListCases(), ConstraintCases(), RequestCases()}) {
    all.insert(all.end(), cases.begin(), cases.end());
  }
  return all;
}

TEST(RequestCodec, EveryFieldAndCap) {
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(c.name);
    pb::GenerateRequest request = Valid();
    c.change(request, *request.mutable_sampling_params());
    const absl::StatusOr<ClientRequest> result = RequestFromProto(request, kLimits);
    if (c.field.empty()) {
      EXPECT_TRUE(result.ok()) << result.status();
      continue;
    }
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), c.code) << result.status();
    EXPECT_EQ(GetErrorFacts(result.status()).field, c.field);
    EXPECT_EQ(std::string(result.status().message()).rfind(c.field + ": ", 0), 0u)
        << result.status();
  }
}

// The table above has to grow with the proto.
TEST(RequestCodec, TableCoversEveryField) {
  std::set<std::string> changed;
  for (const Case& c : AllCases()) {
    pb::GenerateRequest request;
    pb::SamplingParams sampling;
    c.change(request, sampling);
    for (const google::protobuf::Message* m :
         {static_cast<google::protobuf::Message*>(&request),
          static_cast<google::protobuf::Message*>(&sampling)}) {
      std::vector<const google::protobuf::FieldDescriptor*> fields;
      m->GetReflection()->ListFields(*m, &fields);
      for (const auto* f : fields) changed.insert(f->full_name());
    }
  }
  for (const auto* type :
       {pb::GenerateRequest::descriptor(), pb::SamplingParams::descriptor()}) {
    for (int i = 0; i < type->field_count(); ++i) {
      const std::string& name = type->field(i)->full_name();
      if (type->field(i)->name() == "sampling_params") continue;
      EXPECT_TRUE(changed.count(name)) << name << " has no case";
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
  requests[2].prompt = ChatPrompt{{.role = "system", .content = "be brief"},
                                  {.role = "user", .content = "hi"}};
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
  Repeat(1 << 20, [&](int) { request.mutable_tokenized()->add_input_ids(4294967295u); });
  const auto result = RequestFromProto(request, kLimits);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(GetErrorFacts(result.status()).field, "tokenized.input_ids");
}

}  // namespace
}  // namespace millrace
