#include "tools/serve/advice.h"

#include <optional>

#include "absl/strings/cord.h"

namespace millrace {
namespace {

using Code = absl::StatusCode;

constexpr char kPayload[] = "millrace/advice";
constexpr char kOtherModel[] = "This build cannot do that: choose another model or flag.";
constexpr char kMemory[] =
    "Lower --max-model-len (auto takes what fits), --max-num-seqs, --max-num-batched-tokens or "
    "--num-gpu-blocks-override, or use more ranks (--tensor-parallel-size).";

std::string AboutModel(Code code) {
  if (code == Code::kNotFound) return "Give --model the folder with config.json and the weights.";
  if (code == Code::kUnimplemented) return kOtherModel;
  return "The model folder is incomplete or damaged: get the file that is named above again, or "
         "give --model another folder.";
}

std::string AboutSecret(Code code) {
  if (code == Code::kPermissionDenied) {
    return "The secret's file must be yours to read and closed to others (chmod 600).";
  }
  return "Give controller and workers the same --cluster-secret-file, made with (umask 077; "
         "openssl rand -hex 32 > FILE); without the flag both take the one in the cache folder.";
}

// What a rank says about its load and its cache.
std::optional<std::string> AboutLoad(Code code) {
  switch (code) {
    case Code::kResourceExhausted:
      return kMemory;
    case Code::kUnimplemented:
      return kOtherModel;
    case Code::kInvalidArgument:
      return "If it is about the split, choose another --tensor-parallel-size or "
             "--enable-expert-parallel; else a file of the model is damaged: get it again.";
    default:
      return std::nullopt;
  }
}

std::string AboutWorkers(Code code) {
  if (const auto load = AboutLoad(code); load.has_value()) return *load;
  switch (code) {
    case Code::kNotFound:
      return "Give the worker that is named above its machine's copy of the model: worker --model.";
    case Code::kDeadlineExceeded:
      return "Start as many workers as --tensor-parallel-size times --data-parallel-size says, or "
             "raise --startup-timeout.";
    case Code::kFailedPrecondition:
      return "Start controller and workers from the same build, with the same model and flags.";
    default:
      return "The output of the worker that is named above says more.";
  }
}

std::string AboutLocalLoad(Code code) {
  if (const auto load = AboutLoad(code); load.has_value()) return *load;
  return AboutModel(code);
}

}  // namespace

std::string AdviceFor(StartStep step, Code code) {
  switch (step) {
    case StartStep::kFlags:
      return code == Code::kUnimplemented
                 ? kOtherModel
                 : "Change the flag that is named above and start again; --help lists them all.";
    case StartStep::kModel:
    case StartStep::kWeights:
      return AboutModel(code);
    case StartStep::kTokenizer:
      return "Repair or remove the tokenizer's file that is named above, or give --tokenizer "
             "another folder.";
    case StartStep::kSplit:
      return "Give --tensor-parallel-size a number that divides what is named above.";
    case StartStep::kTls:
      return "Give --tls-cert and --tls-key (and --tls-client-ca) PEM files that belong together "
             "and that this user can read.";
    case StartStep::kSecret:
      return AboutSecret(code);
    case StartStep::kListen:
      return code == Code::kUnavailable
                 ? "Stop what listens there (ss -ltnp shows it), or choose another port: --port, "
                   "--metrics-port; 0 takes a free one."
                 : AdviceFor(StartStep::kFlags, code);
    case StartStep::kListenForWorkers:
      return code == Code::kUnavailable
                 ? "Stop what listens there (ss -ltnp shows it), or choose another --worker-port; "
                   "0 takes a free one."
                 : AdviceFor(StartStep::kFlags, code);
    case StartStep::kWorkers:
      return AboutWorkers(code);
    case StartStep::kLoadLocally:
      return AboutLocalLoad(code);
  }
  return "";
}

absl::Status During(StartStep step, absl::Status status) {
  if (status.ok() || !AdviceOf(status).empty()) return status;
  status.SetPayload(kPayload, absl::Cord(AdviceFor(step, status.code())));
  return status;
}

std::string AdviceOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  return payload.has_value() ? std::string(*payload) : "";
}

}  // namespace millrace
