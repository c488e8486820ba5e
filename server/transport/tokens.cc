#include "server/transport/tokens.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "posenc/compat.h"
#include "posenc/v1/service.pb.h"
#include "server/base/small_file.h"

namespace posenc::server {
namespace {

constexpr char kHashed[] = "sha256:";
// Names appear in the log, so they must be short.
constexpr std::size_t kLongestName = 64;
constexpr std::size_t kLongestToken = 4096;

absl::Status Wrong(absl::string_view fact) {
  return absl::InvalidArgumentError(fact);
}

absl::Status Unauthenticated(absl::string_view cause, absl::string_view fact) {
  return core::MakeError(absl::StatusCode::kUnauthenticated,
                         core::ErrorReason::kUnauthenticated, "", fact,
                         {{"cause", std::string(cause)}});
}

bool IsName(absl::string_view text) {
  return !text.empty() && text.size() <= kLongestName &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

// The form is b64token of RFC 6750, section 2.1.
bool IsToken(absl::string_view text) {
  return !text.empty() && text.size() <= kLongestToken &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) ||
                  absl::StrContains("-._~+/=", static_cast<char>(c));
         });
}

std::array<std::uint8_t, 32> HashOf(absl::string_view secret) {
  std::array<std::uint8_t, 32> hash;
  SHA256(reinterpret_cast<const unsigned char*>(secret.data()), secret.size(),
         hash.data());
  return hash;
}

bool ParseSize(absl::string_view text, std::int64_t* bytes) {
  int shift = 0;
  if (absl::ConsumeSuffix(&text, "KiB")) {
    shift = 10;
  } else if (absl::ConsumeSuffix(&text, "MiB")) {
    shift = 20;
  } else if (absl::ConsumeSuffix(&text, "GiB")) {
    shift = 30;
  }
  std::int64_t count = 0;
  if (!absl::SimpleAtoi(text, &count) || count < 1 ||
      count > (INT64_MAX >> shift)) {
    return false;
  }
  *bytes = count << shift;
  return true;
}

}  // namespace

bool IsRpc(absl::string_view name, const ServiceDescriptor* more) {
  const std::string method(name);
  const ServiceDescriptor* const contract =
      v1::GetServerInfoRequest::descriptor()->file()->service(0);
  return contract->FindMethodByName(method) != nullptr ||
         (more != nullptr && more->FindMethodByName(method) != nullptr);
}

absl::StatusOr<Tokens> Tokens::Parse(absl::string_view text,
                                     const ServiceDescriptor* more) {
  Tokens tokens;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    absl::StatusOr<Token> token = ParseLine(line, more);
    const absl::Status status =
        token.ok() ? tokens.Add(*std::move(token)) : token.status();
    if (!status.ok()) {
      return Wrong(absl::StrCat("line ", number, ": ", status.message()));
    }
  }
  if (tokens.tokens_.empty()) return Wrong("holds no token");
  return tokens;
}

absl::StatusOr<Tokens> Tokens::Load(
    const std::string& path, const std::vector<std::string>& public_methods,
    const ServiceDescriptor* more) {
  for (const std::string& method : public_methods) {
    if (IsRpc(method, more)) continue;
    return core::FieldInvalid("--public-methods", "there is no RPC '", method,
                              "'; such as ResolveRope");
  }
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile("--token-file", path));
  absl::StatusOr<Tokens> tokens = Parse(text, more);
  if (!tokens.ok()) {
    return core::FieldInvalid("--token-file", path, ": ",
                              tokens.status().message());
  }
  tokens->public_methods_.insert(public_methods.begin(), public_methods.end());
  return tokens;
}

// Sets the hash from a secret, or from "sha256:" and the secret's hash.
absl::Status Tokens::ParseSecret(absl::string_view secret, Token* token) {
  if (!absl::ConsumePrefix(&secret, kHashed)) {
    if (!IsToken(secret)) {
      return Wrong("the token must be letters, digits and -._~+/=");
    }
    token->hash = HashOf(secret);
    return absl::OkStatus();
  }
  if (secret.size() != 2 * token->hash.size() ||
      !std::all_of(secret.begin(), secret.end(), absl::ascii_isxdigit)) {
    return Wrong("sha256: must be followed by 64 hexadecimal digits");
  }
  const std::string bytes = compat::BytesOfHex(secret);
  std::copy(bytes.begin(), bytes.end(), token->hash.begin());
  // sha256sum prints this hash for empty input, such as an unset variable. A
  // server that accepts this hash would accept an empty token.
  if (token->hash == HashOf("")) {
    return Wrong("sha256: is the hash of nothing; hash the token");
  }
  return absl::OkStatus();
}

// Parses an option "key=value" into `token`. `position` is the word's number in
// its line, for errors.
absl::Status Tokens::ParseOption(absl::string_view word, std::size_t position,
                                 const ServiceDescriptor* more, Token* token) {
  if (absl::ConsumePrefix(&word, "methods=")) {
    for (const absl::string_view method : absl::StrSplit(word, ',')) {
      if (!IsRpc(method, more)) {
        return Wrong(absl::StrCat("methods: there is no RPC '", method, "'"));
      }
      token->methods.emplace(method);
    }
  } else if (absl::ConsumePrefix(&word, "expires=")) {
    if (!absl::ParseTime(absl::RFC3339_full, word, &token->expires, nullptr)) {
      return Wrong("expires: must be a time as in 2027-01-31T00:00:00Z");
    }
  } else if (absl::ConsumePrefix(&word, "in-flight-bytes=")) {
    if (!ParseSize(word, &token->caller.in_flight_bytes)) {
      return Wrong("in-flight-bytes: must be a size as in 64MiB");
    }
  } else {
    // The word may be part of a broken token, so the error omits it.
    return Wrong(
        absl::StrCat("word ", position,
                     " is not one of methods=, expires=, in-flight-bytes="));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tokens::Token> Tokens::ParseLine(absl::string_view line,
                                                const ServiceDescriptor* more) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.size() < 2) return Wrong("must be NAME TOKEN, then options");
  if (!IsName(words[0])) {
    return Wrong("the name must be up to 64 letters, digits, '.', '_', '-'");
  }
  Token token;
  token.caller.name = std::string(words[0]);
  absl::Status status = ParseSecret(words[1], &token);
  for (std::size_t i = 2; status.ok() && i < words.size(); ++i) {
    status = ParseOption(words[i], i + 1, more, &token);
  }
  if (!status.ok()) return status;
  return token;
}

absl::Status Tokens::Add(Token token) {
  for (const Token& other : tokens_) {
    if (other.hash == token.hash) {
      return Wrong(
          absl::StrCat("the same token as one of ", other.caller.name));
    }
    if (other.caller.name == token.caller.name &&
        other.caller.in_flight_bytes != token.caller.in_flight_bytes) {
      return Wrong(
          absl::StrCat("in-flight-bytes: differs from another token "
                       "of ",
                       token.caller.name));
    }
  }
  tokens_.push_back(std::move(token));
  return absl::OkStatus();
}

absl::Time Tokens::last_expiry() const {
  absl::Time last = absl::InfinitePast();
  for (const Token& token : tokens_) last = std::max(last, token.expires);
  return last;
}

// Compares with every token, so that the duration does not show which token has
// matched.
const Tokens::Token* Tokens::Find(const Hash& hash) const {
  const Token* found = nullptr;
  for (const Token& token : tokens_) {
    if (CRYPTO_memcmp(hash.data(), token.hash.data(), hash.size()) == 0) {
      found = &token;
    }
  }
  return found;
}

absl::StatusOr<Caller> Tokens::Check(absl::string_view method,
                                     absl::string_view authorization,
                                     absl::Time now) const {
  if (public_methods_.contains(method)) return Caller();
  if (authorization.empty()) {
    return Unauthenticated("missing",
                           "this server wants a token; send one header "
                           "authorization: Bearer TOKEN");
  }
  // The case of the scheme does not matter (RFC 9110, section 11.1).
  constexpr absl::string_view kScheme = "Bearer ";
  const bool bearer = absl::StartsWithIgnoreCase(authorization, kScheme);
  const absl::string_view secret =
      bearer ? absl::StripAsciiWhitespace(authorization.substr(kScheme.size()))
             : "";
  const Token* const token = Find(HashOf(secret));
  if (token == nullptr || !bearer) {
    return Unauthenticated("invalid", "the token is not known here");
  }
  if (now >= token->expires) {
    return Unauthenticated("expired", "the token has expired");
  }
  if (!token->methods.empty() && !token->methods.contains(method)) {
    return core::MakeError(absl::StatusCode::kPermissionDenied,
                           core::ErrorReason::kPermissionDenied, "",
                           absl::StrCat("the token of ", token->caller.name,
                                        " is not for ", method),
                           {{"method", std::string(method)}});
  }
  return token->caller;
}

}  // namespace posenc::server
