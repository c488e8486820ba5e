// The RPCs with a stream of requests, of responses, or of both.

#pragma once

#include <memory>

#include "server/wire/session.h"
#include "server/wire/sessions.h"

namespace posenc::server {

std::unique_ptr<Session> StartApplyRopeStream(const SessionOptions& options);
std::unique_ptr<Session> StartRepositionStream(const SessionOptions& options);
std::unique_ptr<Session> StartBuildTableStream(const SessionOptions& options);
std::unique_ptr<Session> StartBuildBias(const SessionOptions& options);

}  // namespace posenc::server
