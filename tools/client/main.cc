// bazel run client -- --chat --prompt "Why is the sky blue?"
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/config/read_file.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "kernels/core/status.h"
#include "tools/client/conversation.h"
#include "tools/client/explain_error.h"
#include "tools/client/generate.h"
#include "tools/client/info.h"
#include "tools/common/flags.h"
#include "tools/common/terminal.h"

ABSL_FLAG(std::string, server, "127.0.0.1:50051", "host:port of a controller");
ABSL_FLAG(std::string, tls_ca, "", "PEM file of the server's certificate authority; turns TLS on");
ABSL_FLAG(std::string, timeout, "", "give up after so long, such as 30s or 2m; empty = never");
ABSL_FLAG(bool, info, false, "show model, server and load instead of generating");
ABSL_FLAG(bool, health, false, "show whether the server can generate, instead of generating");
ABSL_FLAG(bool, json, false, "print the answer as JSON");
ABSL_FLAG(std::string, request_id, "",
          "name of the request, for Abort; empty = the server's choice");
ABSL_FLAG(std::string, prompt, "", "the text");
ABSL_FLAG(std::string, prompt_file, "", "take the text from a file; - is standard input");
ABSL_FLAG(std::string, token_ids, "", "the prompt as ids, separated by commas");
ABSL_FLAG(bool, chat, false, "send the prompt as a user's message through the chat template");
ABSL_FLAG(std::string, system, "", "with --chat: the system message");
ABSL_FLAG(std::string, messages, "",
          "JSON file with a conversation in OpenAI's format, instead of --prompt; - is standard "
          "input");
ABSL_FLAG(std::string, tools, "",
          "with --chat or --messages: JSON file with a list of tools in OpenAI's format");
ABSL_FLAG(bool, thinking, true, "of a conversation with a model that can think before it answers");
ABSL_FLAG(std::string, reasoning_effort, "", "how much to think, where the model has a choice");
ABSL_FLAG(bool, stream, true, "show the answer as it comes");
ABSL_FLAG(int32_t, n, 1, "choices");
ABSL_FLAG(std::string, max_tokens, "", "longest answer; empty = what fits");
ABSL_FLAG(int32_t, min_tokens, 0, "shortest answer");
ABSL_FLAG(std::string, temperature, "", "0 = greedy; empty = the model's default");
ABSL_FLAG(std::string, top_p, "", "share of probability to choose from");
ABSL_FLAG(std::string, top_k, "", "number of tokens to choose from");
ABSL_FLAG(std::string, min_p, "", "least probability, relative to the best token's");
ABSL_FLAG(std::string, repetition_penalty, "", "above 1: less repetition");
ABSL_FLAG(double, frequency_penalty, 0, "per earlier use of a token");
ABSL_FLAG(double, presence_penalty, 0, "once for every token used before");
ABSL_FLAG(std::string, seed, "", "for the same answer again; a 32-bit number");
ABSL_FLAG(std::string, logit_bias, "", "ID:BIAS,ID:BIAS,...");
ABSL_FLAG(bool, ignore_eos, false, "do not stop at the end-of-text token");
ABSL_FLAG(std::string, stop, "", "stop strings, separated by commas; \\n, \\t and \\, are escapes");
ABSL_FLAG(std::string, stop_token_ids, "", "ids to stop at, separated by commas");
ABSL_FLAG(bool, include_stop, false, "keep the stop string in the answer");
ABSL_FLAG(bool, skip_special_tokens, true, "leave special tokens out of the text");
ABSL_FLAG(std::string, logprobs, "", "0 = of each token, k = and of the k best");
ABSL_FLAG(std::string, prompt_logprobs, "", "the same for the prompt (with --json)");
ABSL_FLAG(std::string, truncate_prompt_tokens, "", "use the last so many tokens; -1 = what fits");
ABSL_FLAG(std::string, cache_salt, "", "share cached prefixes only with requests of this salt");

namespace millrace {
namespace {

constexpr int64_t kMaxPemBytes = 4 << 20;

absl::Status BadFlag(const char* name, const std::string& value) {
  return absl::InvalidArgumentError(absl::StrCat("--", name, ": cannot read \"", value, "\""));
}

template <typename T>
absl::Status ReadInt(const char* name, const std::string& text, std::optional<T>& out) {
  if (text.empty()) return absl::OkStatus();
  int32_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) return BadFlag(name, text);
  out = static_cast<T>(value);
  return absl::OkStatus();
}

absl::Status ReadFloat(const char* name, const std::string& text, std::optional<float>& out) {
  if (text.empty()) return absl::OkStatus();
  float value = 0;
  if (!absl::SimpleAtof(text, &value)) return BadFlag(name, text);
  out = value;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> ReadIds(const char* name, const std::string& text) {
  std::vector<int32_t> ids;
  for (absl::string_view word : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(word, &id)) return BadFlag(name, std::string(word));
    ids.push_back(id);
  }
  return ids;
}

std::vector<std::string> ReadStops(const std::string& text) {
  std::vector<std::string> stops;
  std::string current;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      const char c = text[++i];
      current += c == 'n' ? '\n' : c == 't' ? '\t' : c;
    } else if (text[i] == ',') {
      stops.push_back(std::exchange(current, ""));
    } else {
      current += text[i];
    }
  }
  if (!current.empty()) stops.push_back(current);
  return stops;
}

absl::Status ReadBias(const std::string& text, std::vector<std::pair<int32_t, float>>& out) {
  for (absl::string_view word : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::vector<std::string> parts = absl::StrSplit(word, ':');
    int32_t id = 0;
    float bias = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &id) ||
        !absl::SimpleAtof(parts[1], &bias)) {
      return BadFlag("logit_bias", std::string(word));
    }
    out.emplace_back(id, bias);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadTextFile(const char* flag, const std::string& file) {
  if (file == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  std::ifstream in(PathFromUser(file), std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat("--", flag, ": cannot open ", file));
  std::ostringstream text;
  text << in.rdbuf();  // pipes too; nothing of a folder
  return std::move(text).str();
}

absl::StatusOr<std::string> ReadText(const std::vector<std::string>& words) {
  const std::string file = absl::GetFlag(FLAGS_prompt_file);
  if (!file.empty()) return ReadTextFile("prompt-file", file);
  const std::string prompt = absl::GetFlag(FLAGS_prompt);
  return prompt.empty() && !words.empty() ? words[0] : prompt;
}

absl::Status NameFlag(const char* flag, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("--", flag, ": ", std::string(status.message())));
}

bool IsChat() { return absl::GetFlag(FLAGS_chat) || !absl::GetFlag(FLAGS_messages).empty(); }

absl::StatusOr<ChatPrompt> ReadChat(const std::string& text) {
  ChatPrompt chat;
  if (const std::string file = absl::GetFlag(FLAGS_messages); !file.empty()) {
    ASSIGN_OR_RETURN(const std::string json, ReadTextFile("messages", file));
    absl::StatusOr<ChatPrompt> read = ReadConversation(json);
    if (!read.ok()) return NameFlag("messages", read.status());
    chat = *std::move(read);
  } else {
    if (const std::string system = absl::GetFlag(FLAGS_system); !system.empty()) {
      chat.push_back({.role = "system", .content = system});
    }
    chat.push_back({.role = "user", .content = text});
  }
  if (const std::string file = absl::GetFlag(FLAGS_tools); !file.empty()) {
    ASSIGN_OR_RETURN(const std::string json, ReadTextFile("tools", file));
    RETURN_IF_ERROR(NameFlag("tools", AddTools(json, chat)));
  }
  return chat;
}

absl::Status ReadPrompt(const std::vector<std::string>& words, ClientRequest& out) {
  if (const std::string ids = absl::GetFlag(FLAGS_token_ids); !ids.empty()) {
    ASSIGN_OR_RETURN(out.prompt, ReadIds("token_ids", ids));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::string text, ReadText(words));
  if (text.empty() && absl::GetFlag(FLAGS_messages).empty()) {
    return absl::InvalidArgumentError(
        "there is no prompt: give --prompt TEXT, --prompt-file FILE, --messages FILE or "
        "--token-ids IDS");
  }
  if (!IsChat()) {
    out.prompt = text;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(out.prompt, ReadChat(text));
  out.chat.reasoning_effort = absl::GetFlag(FLAGS_reasoning_effort);
  return absl::OkStatus();
}

absl::Status ReadSampling(RequestedSampling& s) {
  RETURN_IF_ERROR(ReadFloat("temperature", absl::GetFlag(FLAGS_temperature), s.temperature));
  RETURN_IF_ERROR(ReadFloat("top_p", absl::GetFlag(FLAGS_top_p), s.top_p));
  RETURN_IF_ERROR(ReadInt("top_k", absl::GetFlag(FLAGS_top_k), s.top_k));
  RETURN_IF_ERROR(ReadFloat("min_p", absl::GetFlag(FLAGS_min_p), s.min_p));
  RETURN_IF_ERROR(ReadFloat("repetition_penalty", absl::GetFlag(FLAGS_repetition_penalty),
                            s.repetition_penalty));
  s.frequency_penalty = static_cast<float>(absl::GetFlag(FLAGS_frequency_penalty));
  s.presence_penalty = static_cast<float>(absl::GetFlag(FLAGS_presence_penalty));
  RETURN_IF_ERROR(ReadInt("max_tokens", absl::GetFlag(FLAGS_max_tokens), s.max_tokens));
  s.min_tokens = absl::GetFlag(FLAGS_min_tokens);
  RETURN_IF_ERROR(ReadInt("seed", absl::GetFlag(FLAGS_seed), s.seed));
  s.ignore_eos = absl::GetFlag(FLAGS_ignore_eos);
  ASSIGN_OR_RETURN(s.stop_token_ids,
                   ReadIds("stop_token_ids", absl::GetFlag(FLAGS_stop_token_ids)));
  RETURN_IF_ERROR(ReadBias(absl::GetFlag(FLAGS_logit_bias), s.logit_bias));
  std::optional<int32_t> count;
  RETURN_IF_ERROR(ReadInt("logprobs", absl::GetFlag(FLAGS_logprobs), count));
  s.num_logprobs = count.value_or(-1);
  count.reset();
  RETURN_IF_ERROR(ReadInt("prompt_logprobs", absl::GetFlag(FLAGS_prompt_logprobs), count));
  s.num_prompt_logprobs = count.value_or(-1);
  return absl::OkStatus();
}

absl::StatusOr<ClientRequest> ReadRequest(const std::vector<std::string>& words) {
  ClientRequest request;
  RETURN_IF_ERROR(ReadPrompt(words, request));
  RETURN_IF_ERROR(ReadSampling(request.sampling));
  RETURN_IF_ERROR(ReadInt("truncate_prompt_tokens", absl::GetFlag(FLAGS_truncate_prompt_tokens),
                          request.truncate_prompt_tokens));
  request.request_id = absl::GetFlag(FLAGS_request_id);
  request.n = absl::GetFlag(FLAGS_n);
  request.stream = absl::GetFlag(FLAGS_stream);
  request.cache_salt = absl::GetFlag(FLAGS_cache_salt);
  request.text.stop = ReadStops(absl::GetFlag(FLAGS_stop));
  request.text.include_stop = absl::GetFlag(FLAGS_include_stop);
  request.text.skip_special_tokens = absl::GetFlag(FLAGS_skip_special_tokens);
  request.text.spaces_between_special_tokens = true;
  return request;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect() {
  const std::string server = absl::GetFlag(FLAGS_server);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);  // of a server that the user chose
  const std::string ca = absl::GetFlag(FLAGS_tls_ca);
  if (ca.empty()) {
    return grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments);
  }
  absl::StatusOr<std::string> pem = ReadFile(PathFromUser(ca), kMaxPemBytes);
  if (!pem.ok()) {
    return absl::Status(pem.status().code(),
                        absl::StrCat("--tls-ca: ", std::string(pem.status().message())));
  }
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = *std::move(pem);
  return grpc::CreateCustomChannel(server, grpc::SslCredentials(ssl), arguments);
}

// What conversations with a model of `info` are in need of.
void SuitModel(const vllm::grpc::engine::GetModelInfoResponse& info, ClientRequest& request,
               ShowOptions& show) {
  if (info.model_type() != "deepseek_v4") return;
  const bool thinking = absl::GetFlag(FLAGS_thinking);
  request.chat.thinking = thinking;
  request.text.skip_special_tokens = false;  // they are part of what is read
  show.reading = {.thinking = thinking,
                  .end_tokens = {info.eos_token_ids().begin(), info.eos_token_ids().end()}};
}

absl::Status Run(const std::vector<std::string>& words) {
  absl::Duration timeout = absl::InfiniteDuration();
  const std::string patience = absl::GetFlag(FLAGS_timeout);
  if (!patience.empty() && !absl::ParseDuration(patience, &timeout)) {
    return BadFlag("timeout", patience);
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, Connect());
  if (absl::GetFlag(FLAGS_info)) return ShowInfo(channel, timeout, std::cout);
  if (absl::GetFlag(FLAGS_health)) return ShowHealth(channel, timeout, std::cout);
  ASSIGN_OR_RETURN(ClientRequest request, ReadRequest(words));
  ShowOptions show = {.json = absl::GetFlag(FLAGS_json),
                      .show_logprobs = request.sampling.num_logprobs >= 0,
                      .moving = IsTerminal(STDERR_FILENO),
                      .timeout = timeout};
  if (std::holds_alternative<ChatPrompt>(request.prompt)) {
    ASSIGN_OR_RETURN(const auto info, AskModelInfo(channel, timeout));
    SuitModel(info, request, show);
  }
  vllm::grpc::engine::VllmEngine::Stub stub(channel);
  return GenerateAndShow(stub, request, show, std::cout, std::cerr);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Asks a Millrace server. Example: client --chat --prompt \"Why is the sky blue?\"");
  const std::vector<std::string> words =
      millrace::ParseFlags(argc, argv, {{"include_stop_str_in_output", "include_stop"}});
  const absl::Status status = millrace::Run(words);
  if (status.ok()) return 0;
  std::cerr << millrace::ExplainError(status, absl::GetFlag(FLAGS_server));
  return 1;
}
