#include "distributed/controller/frontdoor/reflection_service.h"

#include <set>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"

namespace millrace {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

const DescriptorPool& Pool() { return *DescriptorPool::generated_pool(); }

template <typename Response>
void Refuse(grpc::StatusCode code, const std::string& message, Response& out) {
  out.mutable_error_response()->set_error_code(code);
  out.mutable_error_response()->set_error_message(message);
}

// The file and all that it imports, each once.
template <typename Response>
void AddFile(const FileDescriptor& file, std::set<const FileDescriptor*>& added, Response& out) {
  if (!added.insert(&file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  out.mutable_file_descriptor_response()->add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AddFile(*file.dependency(i), added, out);
}

template <typename Response>
void AnswerFile(const FileDescriptor* file, Response& out) {
  if (file == nullptr) return Refuse(grpc::StatusCode::NOT_FOUND, "not known here", out);
  std::set<const FileDescriptor*> added;
  AddFile(*file, added, out);
}

template <typename Request>
const FileDescriptor* FileOfExtension(const Request& request) {
  const auto& wanted = request.file_containing_extension();
  const Descriptor* type = Pool().FindMessageTypeByName(wanted.containing_type());
  if (type == nullptr) return nullptr;
  const FieldDescriptor* field = Pool().FindExtensionByNumber(type, wanted.extension_number());
  return field == nullptr ? nullptr : field->file();
}

template <typename Response>
void AnswerExtensions(const std::string& name, Response& out) {
  const Descriptor* type = Pool().FindMessageTypeByName(name);
  if (type == nullptr) return Refuse(grpc::StatusCode::NOT_FOUND, "not known here", out);
  std::vector<const FieldDescriptor*> fields;
  Pool().FindAllExtensions(type, &fields);
  out.mutable_all_extension_numbers_response()->set_base_type_name(name);
  for (const FieldDescriptor* field : fields) {
    out.mutable_all_extension_numbers_response()->add_extension_number(field->number());
  }
}

template <typename Request, typename Response>
void Answer(const Request& request, const std::vector<std::string>& services, Response& out) {
  out.set_valid_host(request.host());
  *out.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case Request::kListServices:
      for (const std::string& name : services) {
        out.mutable_list_services_response()->add_service()->set_name(name);
      }
      return;
    case Request::kFileByFilename:
      return AnswerFile(Pool().FindFileByName(request.file_by_filename()), out);
    case Request::kFileContainingSymbol:
      return AnswerFile(Pool().FindFileContainingSymbol(request.file_containing_symbol()), out);
    case Request::kFileContainingExtension:
      return AnswerFile(FileOfExtension(request), out);
    case Request::kAllExtensionNumbersOfType:
      return AnswerExtensions(request.all_extension_numbers_of_type(), out);
    case Request::MESSAGE_REQUEST_NOT_SET:
      break;
  }
  Refuse(grpc::StatusCode::INVALID_ARGUMENT, "message_request is not set", out);
}

// One question after the other. Owned by gRPC until OnDone.
template <typename Request, typename Response>
class Conversation final : public grpc::ServerBidiReactor<Request, Response> {
 public:
  explicit Conversation(const std::vector<std::string>& services) : services_(services) {
    this->StartRead(&request_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) return this->Finish(grpc::Status::OK);
    response_.Clear();
    Answer(request_, services_, response_);
    this->StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return this->Finish(grpc::Status::CANCELLED);
    this->StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  const std::vector<std::string>& services_;
  Request request_;
  Response response_;
};

}  // namespace

template <typename Service, typename Request, typename Response>
grpc::ServerBidiReactor<Request, Response>*
ReflectionServiceOf<Service, Request, Response>::ServerReflectionInfo(
    grpc::CallbackServerContext* context) {
  return new Conversation<Request, Response>(services_);
}

template class ReflectionServiceOf<grpc::reflection::v1::ServerReflection,
                                   grpc::reflection::v1::ServerReflectionRequest,
                                   grpc::reflection::v1::ServerReflectionResponse>;
template class ReflectionServiceOf<grpc::reflection::v1alpha::ServerReflection,
                                   grpc::reflection::v1alpha::ServerReflectionRequest,
                                   grpc::reflection::v1alpha::ServerReflectionResponse>;

}  // namespace millrace
