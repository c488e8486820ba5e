// What gRPC itself writes to standard error.

#pragma once

namespace posenc::flags {

// Keeps gRPC's lines away, unless GRPC_VERBOSITY asks for them: commands tell
// an error once, in a line of their own. To be called before anything of
// gRPC's.
void SilenceGrpc();

}  // namespace posenc::flags
