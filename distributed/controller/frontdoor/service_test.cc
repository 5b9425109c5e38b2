// The calls beside Generate: health, facts, loads, tokenizer, cache, metrics.
#include <openssl/sha.h>
#include <zip.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "distributed/controller/frontdoor/testing/server_fixture.h"
#include "distributed/wire/error_details.h"
#include "gtest/gtest.h"
#include "proto/health.grpc.pb.h"
#include "proto/reflection.grpc.pb.h"
#include "proto/reflection_v1alpha.grpc.pb.h"

namespace millrace {
namespace {

namespace pb = ::vllm::grpc::engine;
namespace common = ::smg::grpc::common;
namespace health = ::grpc::health::v1;
using Status = health::HealthCheckResponse;

constexpr char kEngine[] = "vllm.grpc.engine.VllmEngine";

class ServiceTest : public ServerFixture {
 protected:
  template <typename Stub, typename Request, typename Response>
  absl::Status Ask(Stub& stub,
                   grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                   const Request& request, Response* response) {
    grpc::ClientContext context;
    return FromGrpcStatus((stub.*method)(&context, request, response));
  }
  template <typename Request, typename Response>
  absl::Status AskEngine(grpc::Status (pb::VllmEngine::Stub::*method)(grpc::ClientContext*,
                                                                      const Request&, Response*),
                         const Request& request, Response* response) {
    return Ask(*stub_, method, request, response);
  }
  absl::StatusOr<int> CheckHealth(const std::string& service) {
    health::Health::Stub stub(NewChannel());
    health::HealthCheckRequest request;
    request.set_service(service);
    Status response;
    const absl::Status status = Ask(stub, &health::Health::Stub::Check, request, &response);
    if (!status.ok()) return status;
    return response.status();
  }
};

TEST_F(ServiceTest, HealthCheck) {
  StartServer(/*with_executor=*/false);
  EXPECT_EQ(*CheckHealth(""), Status::SERVING);
  EXPECT_EQ(*CheckHealth(kEngine), Status::NOT_SERVING);
  EXPECT_EQ(CheckHealth("other").status().code(), absl::StatusCode::kNotFound);
  pb::HealthCheckResponse own;
  ASSERT_TRUE(AskEngine(&pb::VllmEngine::Stub::HealthCheck, pb::HealthCheckRequest(), &own).ok());
  EXPECT_FALSE(own.healthy());
  EXPECT_NE(own.message().find("loading"), std::string::npos);
  ASSERT_TRUE(SetExecutor().ok());
  EXPECT_EQ(*CheckHealth(kEngine), Status::SERVING);
  ASSERT_TRUE(AskEngine(&pb::VllmEngine::Stub::HealthCheck, pb::HealthCheckRequest(), &own).ok());
  EXPECT_TRUE(own.healthy());
  health::Health::Stub stub(NewChannel());
  health::HealthListResponse list;
  ASSERT_TRUE(Ask(stub, &health::Health::Stub::List, health::HealthListRequest(), &list).ok());
  EXPECT_EQ(list.statuses().at(kEngine).status(), Status::SERVING);
  EXPECT_EQ(list.statuses().size(), 2u);
}

TEST_F(ServiceTest, WatchTellsEveryTurn) {
  StartServer(/*with_executor=*/false);
  health::Health::Stub stub(NewChannel());
  grpc::ClientContext context;
  health::HealthCheckRequest request;
  request.set_service(kEngine);
  const auto reader = stub.Watch(&context, request);
  Status response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), Status::NOT_SERVING);
  ASSERT_TRUE(SetExecutor().ok());
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), Status::SERVING);
  control_->broken = true;
  EXPECT_FALSE(Generate(TextRequest("a", 4, true)).status.ok());
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), Status::NOT_SERVING);
  control_->broken = false;
  ASSERT_TRUE(SetExecutor().ok());
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), Status::SERVING);
  EXPECT_TRUE(server_->Drain(absl::Seconds(5)));
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), Status::NOT_SERVING);
  server_.reset();
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(ServiceTest, WatchOfUnknownServiceSaysSoAndStays) {
  StartServer();
  health::Health::Stub stub(NewChannel());
  grpc::ClientContext context;
  health::HealthCheckRequest request;
  request.set_service("other");
  const auto reader = stub.Watch(&context, request);
  Status response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), Status::SERVICE_UNKNOWN);
  context.TryCancel();
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(ServiceTest, ModelAndServerInfo) {
  StartServer();
  pb::GetModelInfoResponse model;
  ASSERT_TRUE(
      AskEngine(&pb::VllmEngine::Stub::GetModelInfo, pb::GetModelInfoRequest(), &model).ok());
  EXPECT_EQ(model.served_model_name(), "letters");
  EXPECT_EQ(model.model_path(), folder_);
  EXPECT_EQ(model.tokenizer_path(), folder_);
  EXPECT_TRUE(model.is_generation());
  EXPECT_EQ(model.max_context_length(), 512u);
  EXPECT_EQ(model.max_req_input_len(), 511);
  EXPECT_EQ(model.vocab_size(), static_cast<uint32_t>(kLettersVocab));
  EXPECT_EQ(model.model_type(), "llama");
  ASSERT_EQ(model.architectures_size(), 1);
  EXPECT_EQ(model.architectures(0), "LlamaForCausalLM");
  ASSERT_EQ(model.eos_token_ids_size(), 1);
  EXPECT_EQ(model.eos_token_ids(0), kLettersEos);
  EXPECT_EQ(model.bos_token_id(), kLettersBos);
  EXPECT_EQ(model.default_sampling_params_json(), "{\"temperature\":0.5}");
  pb::GetServerInfoResponse server;
  ASSERT_TRUE(
      AskEngine(&pb::VllmEngine::Stub::GetServerInfo, pb::GetServerInfoRequest(), &server).ok());
  EXPECT_EQ(server.server_type(), "vllm-grpc");
  EXPECT_EQ(server.data_parallel_size(), 1);
  EXPECT_EQ(server.block_size(), kPageTokens);
  EXPECT_EQ(server.max_num_seqs(), 8);
  EXPECT_FALSE(server.is_paused());
  EXPECT_GT(server.uptime_seconds(), 0);
}

TEST_F(ServiceTest, ServesTheLengthThatCameWithTheExecutor) {
  StartServer(/*with_executor=*/false);
  const auto length = [this] {
    pb::GetModelInfoResponse model;
    EXPECT_TRUE(
        AskEngine(&pb::VllmEngine::Stub::GetModelInfo, pb::GetModelInfoRequest(), &model).ok());
    EXPECT_EQ(model.max_req_input_len(), static_cast<int32_t>(model.max_context_length()) - 1);
    return static_cast<int32_t>(model.max_context_length());
  };
  const auto longest = [this](int32_t prompt, uint32_t max_tokens) {
    const std::string text(static_cast<size_t>(prompt) - 1, 'a');  // behind the begin token
    return Generate(TextRequest(text, max_tokens, false)).status.code();
  };
  EXPECT_EQ(length(), 512);
  EXPECT_FALSE(SetExecutor(/*num_pages=*/6).ok()) << "96 tokens do not hold 512";
  ASSERT_TRUE(SetExecutor(/*num_pages=*/6, /*max_model_len=*/96).ok());
  EXPECT_EQ(length(), 96);
  EXPECT_EQ(server_->model().max_model_len, 96);
  EXPECT_EQ(longest(95, 1), absl::StatusCode::kOk);
  EXPECT_EQ(longest(96, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(longest(50, 47), absl::StatusCode::kInvalidArgument);
  // The next group may have more room.
  ASSERT_TRUE(SetExecutor().ok());
  EXPECT_EQ(length(), 512);
  EXPECT_EQ(longest(511, 1), absl::StatusCode::kOk);
}

TEST_F(ServiceTest, Loads) {
  StartServer();
  control_->step_micros = 1000;
  pb::GetLoadsResponse loads;
  std::thread call([&] { Generate(TextRequest("0", 400, true)); });
  EXPECT_TRUE(Eventually([&] { return server_->stats().scheduler.running == 1; }));
  ASSERT_TRUE(AskEngine(&pb::VllmEngine::Stub::GetLoads, pb::GetLoadsRequest(), &loads).ok());
  call.join();
  ASSERT_EQ(loads.loads_size(), 1);
  EXPECT_EQ(loads.dp_rank_count(), 1);
  EXPECT_EQ(loads.loads(0).num_running_reqs(), 1);
  EXPECT_EQ(loads.loads(0).max_total_num_tokens(), kPages * kPageTokens);
  EXPECT_GT(loads.loads(0).num_used_tokens(), 0);
  EXPECT_EQ(loads.loads(0).max_running_requests(), 8);
  pb::GetLoadsRequest other;
  other.set_dp_rank(3);
  EXPECT_EQ(AskEngine(&pb::VllmEngine::Stub::GetLoads, other, &loads).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ServiceTest, LoadsAreOfAllDataParallelGroups) {
  options_.scheduler.data_parallel_size = 3;
  StartServer();
  pb::GetLoadsResponse loads;
  ASSERT_TRUE(AskEngine(&pb::VllmEngine::Stub::GetLoads, pb::GetLoadsRequest(), &loads).ok());
  ASSERT_EQ(loads.loads_size(), 1);
  EXPECT_EQ(loads.loads(0).max_total_num_tokens(), 3 * kPages * kPageTokens);
  EXPECT_EQ(loads.loads(0).max_running_requests(), 3 * 8);
  pb::GetServerInfoResponse server;
  ASSERT_TRUE(
      AskEngine(&pb::VllmEngine::Stub::GetServerInfo, pb::GetServerInfoRequest(), &server).ok());
  EXPECT_EQ(server.data_parallel_size(), 1);
  EXPECT_EQ(server.max_num_seqs(), 3 * 8);
}

std::vector<std::string> NamesInZip(const std::string& bytes) {
  std::vector<std::string> names;
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, nullptr);
  zip_t* zip = zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, nullptr);
  EXPECT_NE(zip, nullptr);
  for (zip_int64_t i = 0; i < zip_get_num_entries(zip, 0); ++i) {
    names.push_back(zip_get_name(zip, static_cast<zip_uint64_t>(i), 0));
  }
  zip_close(zip);
  return names;
}

TEST_F(ServiceTest, TokenizerBundle) {
  StartServer(/*with_executor=*/false);
  for (int round = 0; round < 2; ++round) {
    grpc::ClientContext context;
    const auto reader = stub_->GetTokenizer(&context, common::GetTokenizerRequest());
    std::string bytes;
    std::string hash;
    common::GetTokenizerChunk chunk;
    while (reader->Read(&chunk)) {
      EXPECT_TRUE(hash.empty()) << "only the last chunk has it";
      EXPECT_LE(chunk.data().size(), size_t{64} << 10);
      bytes += chunk.data();
      hash = chunk.sha256();
    }
    ASSERT_TRUE(reader->Finish().ok());
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
    EXPECT_EQ(hash, absl::BytesToHexString(
                        absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest))));
    EXPECT_EQ(NamesInZip(bytes),
              (std::vector<std::string>{"config.json", "generation_config.json", "tokenizer.json",
                                        "tokenizer_config.json"}));
  }
}

TEST_F(ServiceTest, FlushCacheForgetsPrefixes) {
  StartServer();
  const std::string prompt(100, 'a');
  Generate(TextRequest(prompt, 3, false));
  common::FlushCacheResponse response;
  ASSERT_TRUE(
      AskEngine(&pb::VllmEngine::Stub::FlushCache, common::FlushCacheRequest(), &response).ok());
  EXPECT_TRUE(response.success());
  EXPECT_EQ(Generate(TextRequest(prompt, 3, false)).first().end().usage.cached_tokens, 0);
  common::FlushCacheRequest bad;
  bad.set_timeout_s(-1);
  EXPECT_EQ(AskEngine(&pb::VllmEngine::Stub::FlushCache, bad, &response).code(),
            absl::StatusCode::kInvalidArgument);
}

template <typename Stub, typename Request, typename Response>
Response Reflect(const std::shared_ptr<grpc::Channel>& channel, const Request& request) {
  Stub stub(channel);
  grpc::ClientContext context;
  const auto stream = stub.ServerReflectionInfo(&context);
  Response response;
  EXPECT_TRUE(stream->Write(request));
  EXPECT_TRUE(stream->Read(&response));
  EXPECT_TRUE(stream->WritesDone());
  EXPECT_TRUE(stream->Finish().ok());
  return response;
}

TEST_F(ServiceTest, ReflectionInBothVersions) {
  options_.reflection = true;
  StartServer();
  namespace v1 = ::grpc::reflection::v1;
  namespace alpha = ::grpc::reflection::v1alpha;
  alpha::ServerReflectionRequest list;
  list.set_list_services("");
  const auto names = Reflect<alpha::ServerReflection::Stub, alpha::ServerReflectionRequest,
                             alpha::ServerReflectionResponse>(NewChannel(), list)
                         .list_services_response();
  EXPECT_EQ(names.service_size(), 4);
  EXPECT_EQ(names.service(0).name(), kEngine);
  const auto ask = [&](const v1::ServerReflectionRequest& request) {
    return Reflect<v1::ServerReflection::Stub, v1::ServerReflectionRequest,
                   v1::ServerReflectionResponse>(NewChannel(), request);
  };
  v1::ServerReflectionRequest request;
  request.set_file_containing_symbol(kEngine);
  EXPECT_EQ(ask(request).file_descriptor_response().file_descriptor_proto_size(), 2);
  request.set_file_by_filename("proto/common.proto");
  EXPECT_EQ(ask(request).file_descriptor_response().file_descriptor_proto_size(), 1);
  request.set_file_by_filename("none.proto");
  EXPECT_EQ(ask(request).error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  request.clear_message_request();
  EXPECT_EQ(ask(request).error_response().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServiceTest, ReflectionOff) {
  StartServer();
  grpc::reflection::v1::ServerReflection::Stub stub(NewChannel());
  grpc::ClientContext context;
  const auto stream = stub.ServerReflectionInfo(&context);
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ServiceTest, WhatIsNotBuiltSaysSo) {
  StartServer();
  constexpr auto kCode = absl::StatusCode::kUnimplemented;
  pb::EmbedResponse embed;
  EXPECT_EQ(AskEngine(&pb::VllmEngine::Stub::Embed, pb::EmbedRequest(), &embed).code(), kCode);
  common::ProfileResponse profile;
  EXPECT_EQ(AskEngine(&pb::VllmEngine::Stub::StartProfile, common::StartProfileRequest(), &profile)
                .code(),
            kCode);
  EXPECT_EQ(
      AskEngine(&pb::VllmEngine::Stub::StopProfile, common::StopProfileRequest(), &profile).code(),
      kCode);
  grpc::ClientContext context;
  const auto reader = stub_->SubscribeKvEvents(&context, common::SubscribeKvEventsRequest());
  common::KvEventBatch batch;
  EXPECT_FALSE(reader->Read(&batch));
  EXPECT_EQ(FromGrpcStatus(reader->Finish()).code(), kCode);
}

TEST_F(ServiceTest, MetricsCountAndNameNobody) {
  options_.metrics = true;
  options_.metrics_prefix = "vllm:";
  StartServer();
  pb::GenerateRequest request = TextRequest("w", 16, true);
  request.set_request_id("secret-request-name");
  request.mutable_sampling_params()->set_n(2);
  ASSERT_TRUE(Generate(request).status.ok());
  request.mutable_sampling_params()->set_n(17);
  ASSERT_FALSE(Generate(request).status.ok());
  EXPECT_GT(server_->metrics_port(), 0);
  const std::string text = server_->metrics_text();
  for (const char* line :
       {"vllm:request_success_total{model_name=\"letters\",finished_reason=\"stop\"} 2",
        "vllm:request_status_total{model_name=\"letters\",code=\"OK\"} 1",
        "vllm:request_status_total{model_name=\"letters\",code=\"INVALID_ARGUMENT\"} 1",
        "vllm:num_requests_running{model_name=\"letters\"} 0",
        "vllm:num_requests_waiting{model_name=\"letters\"} 0",
        "vllm:kv_cache_usage_perc{model_name=\"letters\"} 0",
        "vllm:time_to_first_token_seconds_count{model_name=\"letters\"} 2",
        "vllm:inter_token_latency_seconds_count{model_name=\"letters\"} 8",
        "vllm:e2e_request_latency_seconds_count{model_name=\"letters\"} 2",
        "vllm:request_params_n_sum{model_name=\"letters\"} 2"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << " is not in\n" << text;
  }
  for (const char* name :
       {"vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:num_preemptions_total",
        "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:cache_config_info",
        "vllm:iteration_tokens_total_count"}) {
    EXPECT_NE(text.find(name), std::string::npos) << name;
  }
  EXPECT_EQ(text.find("secret"), std::string::npos);
}

}  // namespace
}  // namespace millrace
