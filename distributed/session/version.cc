#include "distributed/session/version.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <openssl/sha.h>

#include "absl/strings/escaping.h"
#include "proto/worker.pb.h"

namespace millrace {

std::string ProtocolRevision() {
  google::protobuf::FileDescriptorProto file;
  worker::Frame::descriptor()->file()->CopyTo(&file);
  const std::string text = file.SerializeAsString();
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return absl::BytesToHexString(digest).substr(0, 16);
}

}  // namespace millrace
