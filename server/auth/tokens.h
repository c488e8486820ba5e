// Bearer tokens: who may call which RPCs.
//
// A file has a token a line; blank lines and those that begin with '#' count
// for nothing:
//
//   NAME TOKEN [methods=RPC,RPC...] [expires=RFC3339] [in-flight-bytes=SIZE]
//
//   trainer  4xI...Zq                        methods=ApplyRope,ApplyRopeStream
//   trainer  sha256:9f86d0...0f00a08         expires=2027-01-31T00:00:00Z
//   notebook fJ0...=                         in-flight-bytes=64MiB
//
// A name may have several tokens, so that a new one can be rolled out before
// the old one ends. TOKEN stands in the clear or as the SHA-256 of it, in hex.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/descriptor.h"

namespace posenc::server {

// Of services beside the contract's.
using ServiceDescriptors =
    std::vector<const google::protobuf::ServiceDescriptor*>;

// Who calls.
struct Caller {
  std::string name;
  // Bytes of the budget that calls of this name may hold together, 0 if the
  // file does not say.
  std::int64_t in_flight_bytes = 0;
};

// Immutable, so safe for any number of threads. Keeps no token, only hashes.
class Tokens {
 public:
  // INVALID_ARGUMENT names the line, never the token: for a line that has not
  // the form above, an RPC that there is not, a token that stands there twice,
  // limits of one name that differ, or no token at all. more: as in IsRpc().
  static absl::StatusOr<Tokens> Parse(absl::string_view text,
                                      const ServiceDescriptors& more = {});

  // The caller whose token an `authorization` header ("Bearer TOKEN") shows.
  // UNAUTHENTICATED if it is missing (empty), unknown or has expired,
  // PERMISSION_DENIED if the token is not for `method`. How long it takes does
  // not depend on how much of a token is right, nor on which one it is.
  absl::StatusOr<Caller> Check(absl::string_view method,
                               absl::string_view authorization,
                               absl::Time now) const;

  std::size_t size() const { return tokens_.size(); }

  // From then on no token holds.
  absl::Time last_expiry() const;

 private:
  using Hash = std::array<std::uint8_t, 32>;

  struct Token {
    Hash hash;
    Caller caller;
    absl::flat_hash_set<std::string> methods;  // empty: all
    absl::Time expires = absl::InfiniteFuture();
  };

  static absl::StatusOr<Token> ParseLine(absl::string_view line,
                                         const ServiceDescriptors& more);
  absl::Status Add(Token token);
  const Token* Find(const Hash& hash) const;

  std::vector<Token> tokens_;
};

// Whether the contract, or one of `more`, has an RPC of this name:
// "ApplyRope".
bool IsRpc(absl::string_view name, const ServiceDescriptors& more);

}  // namespace posenc::server
