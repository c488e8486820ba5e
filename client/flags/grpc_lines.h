// gRPC's own lines on standard error.

#pragma once

namespace posenc::flags {

// Hides gRPC's lines, unless GRPC_VERBOSITY is set: commands print an error
// once, in their own line. Must be called before any function of gRPC.
void SilenceGrpc();

}  // namespace posenc::flags
