// The system message that a ChatML template supplies to conversations without one.
#ifndef ENGINE_CHAT_DEFAULT_SYSTEM_H_
#define ENGINE_CHAT_DEFAULT_SYSTEM_H_

#include <string>

namespace millrace {

// `source` is a Jinja template, which is read and not evaluated: the first whole system block
// that is written down as one text, be it in either branch of a condition. Empty when there is
// none, or when parts of it are computed.
std::string DefaultSystem(const std::string& source);

}  // namespace millrace

#endif  // ENGINE_CHAT_DEFAULT_SYSTEM_H_
