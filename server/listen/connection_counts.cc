#include "server/listen/connection_counts.h"

namespace posenc::server {

const char* EndingName(Ending ending) {
  constexpr const char* kNames[kEndings] = {"at_cap",
                                            "no_descriptor",
                                            "for_room",
                                            "foreign",
                                            "handshake_timeout",
                                            "headers_timeout",
                                            "first_call_timeout",
                                            "not_reading",
                                            "too_many_calls"};
  return kNames[static_cast<int>(ending)];
}

}  // namespace posenc::server
