// Certificates for tests, made anew each time.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_TESTING_SELF_SIGNED_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_TESTING_SELF_SIGNED_H_

#include <string>

namespace millrace {

struct SelfSigned {
  std::string certificate;  // PEM, of 127.0.0.1 and localhost; its own authority
  std::string key;          // PEM
};

SelfSigned MakeSelfSigned(const std::string& name);

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_TESTING_SELF_SIGNED_H_
