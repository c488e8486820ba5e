// Bearer tokens decide which callers may call which RPCs.
//
// A file has one token on each line. Blank lines and '#' lines are ignored:
//
//   NAME TOKEN [methods=RPC,RPC...] [expires=RFC3339] [in-flight-bytes=SIZE]
//
//   trainer  4xI...Zq                        methods=ApplyRope,ApplyRopeStream
//   trainer  sha256:9f86d0...0f00a08         expires=2027-01-31T00:00:00Z
//   notebook fJ0...=                         in-flight-bytes=64MiB
//
// A name may have several tokens, so that a new token can be rolled out before
// the old token expires. TOKEN is the token itself or its SHA-256 in
// hexadecimal.

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

using google::protobuf::ServiceDescriptor;

// The caller that a token identifies.
struct Caller {
  std::string name;
  // Limit for the bytes of the budget that all calls of this name claim
  // together; 0 if the file sets no limit.
  std::int64_t in_flight_bytes = 0;
};

// Immutable, so safe for any number of threads. Stores only hashes of tokens.
class Tokens {
 public:
  // Parses a file's text. Returns INVALID_ARGUMENT for another form, an unknown
  // RPC, a repeated token, different limits for one name, or no tokens. The
  // error names the line, but never the token. IsRpc() explains `more`.
  static absl::StatusOr<Tokens> Parse(absl::string_view text,
                                      const ServiceDescriptor* more = nullptr);

  // Parses a file. Calls of `public_methods` need no token. Returns
  // INVALID_ARGUMENT, field "--token-file" or "--public-methods", if the file
  // cannot be read or parsed, or an RPC is unknown.
  static absl::StatusOr<Tokens> Load(
      const std::string& path, const std::vector<std::string>& public_methods,
      const ServiceDescriptor* more);

  // Returns the caller of the token in an `authorization` header ("Bearer
  // TOKEN"). Returns UNAUTHENTICATED if the token is missing, unknown or
  // expired, and PERMISSION_DENIED if it does not allow `method`. The duration
  // of a check does not show how much of a token is right, or which token
  // matches. The caller of a public method has no name.
  absl::StatusOr<Caller> Check(absl::string_view method,
                               absl::string_view authorization,
                               absl::Time now) const;

  std::size_t size() const { return tokens_.size(); }

  // Returns the time after which no token is valid.
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
                                         const ServiceDescriptor* more);
  static absl::Status ParseSecret(absl::string_view secret, Token* token);
  static absl::Status ParseOption(absl::string_view word, std::size_t position,
                                  const ServiceDescriptor* more, Token* token);
  absl::Status Add(Token token);
  const Token* Find(const Hash& hash) const;

  std::vector<Token> tokens_;
  absl::flat_hash_set<std::string> public_methods_;
};

// Returns whether the contract, or the service `more`, has an RPC with this
// name, for example "ApplyRope". `more` is null if there is no other service.
bool IsRpc(absl::string_view name, const ServiceDescriptor* more);

}  // namespace posenc::server
