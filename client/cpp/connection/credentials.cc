#include "client/cpp/connection/credentials.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/cpp/connection/error_fields.h"
#include "client/cpp/connection/target.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "grpcpp/create_channel.h"

namespace posenc {
namespace {

// Shortest time between two checks of a token's file for changes.
constexpr absl::Duration kCheckInterval = absl::Seconds(1);

// Checks that the service config is JSON, because gRPC would not report this
// error.
absl::Status CheckServiceConfig(const ClientOptions& options) {
  if (!options.service_config.has_value()) return absl::OkStatus();
  google::protobuf::Struct json;
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      *options.service_config, &json);
  if (parsed.ok()) return absl::OkStatus();
  return WrongArgument("service_config", absl::StrCat("must be a JSON object: ",
                                                      parsed.ToString()));
}

absl::StatusOr<std::string> ReadFile(absl::string_view option,
                                     const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty()) {
    return WrongArgument(
        option, absl::StrCat(path, ": ",
                             errno != 0 ? std::strerror(errno) : "is empty"));
  }
  return text.str();
}

// Gives no passphrase, so that OpenSSL does not ask for one at the terminal.
int NoPassphrase(char*, int, int, void*) { return 0; }

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

Bio Reader(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())),
             &BIO_free);
}

// Returns the first certificate; null if there is none.
Certificate ReadCertificate(const std::string& text) {
  const Bio reader = Reader(text);
  Certificate certificate(
      PEM_read_bio_X509(reader.get(), nullptr, NoPassphrase, nullptr),
      &X509_free);
  ERR_clear_error();
  return certificate;
}

Key ReadKey(const std::string& text) {
  const Bio reader = Reader(text);
  Key key(PEM_read_bio_PrivateKey(reader.get(), nullptr, NoPassphrase, nullptr),
          &EVP_PKEY_free);
  ERR_clear_error();
  return key;
}

// Reads and checks the files, because gRPC would not report which file is bad.
absl::StatusOr<grpc::SslCredentialsOptions> ReadTls(const TlsOptions& tls) {
  grpc::SslCredentialsOptions ssl;
  if (!tls.ca_file.empty()) {
    auto text = ReadFile("tls.ca_file", tls.ca_file);
    if (!text.ok()) return text.status();
    if (ReadCertificate(*text) == nullptr) {
      return WrongArgument(
          "tls.ca_file",
          absl::StrCat(tls.ca_file, ": holds no certificate; must be PEM"));
    }
    ssl.pem_root_certs = *std::move(text);
  }
  if (tls.cert_file.empty() != tls.key_file.empty()) {
    return WrongArgument(
        tls.cert_file.empty() ? "tls.cert_file" : "tls.key_file",
        "is missing; certificate and key come together");
  }
  if (tls.cert_file.empty()) return ssl;
  auto cert = ReadFile("tls.cert_file", tls.cert_file);
  if (!cert.ok()) return cert.status();
  const Certificate certificate = ReadCertificate(*cert);
  if (certificate == nullptr) {
    return WrongArgument(
        "tls.cert_file",
        absl::StrCat(tls.cert_file, ": holds no certificate; must be PEM"));
  }
  auto key = ReadFile("tls.key_file", tls.key_file);
  if (!key.ok()) return key.status();
  const Key parsed = ReadKey(*key);
  if (parsed == nullptr) {
    return WrongArgument(
        "tls.key_file",
        absl::StrCat(tls.key_file, ": must be a PEM key without passphrase"));
  }
  if (X509_check_private_key(certificate.get(), parsed.get()) != 1) {
    ERR_clear_error();
    return WrongArgument(
        "tls.key_file",
        absl::StrCat(tls.key_file, ": is not the key of the certificate"));
  }
  ssl.pem_cert_chain = *std::move(cert);
  ssl.pem_private_key = *std::move(key);
  return ssl;
}

// Refuses blanks and line ends, because the value of a header cannot have them.
absl::StatusOr<std::string> CheckToken(absl::string_view option,
                                       absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (text.empty() ||
      !std::all_of(text.begin(), text.end(), absl::ascii_isgraph)) {
    return WrongArgument(option, "must hold one token, of visible characters");
  }
  return std::string(text);
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  const auto text = ReadFile("token_file", path);
  if (!text.ok()) return text.status();
  return CheckToken(absl::StrCat("token_file: ", path), *text);
}

// Puts the token into every call's headers. A changed file is read again; while
// it cannot be read, the last token is used.
class Bearer final : public grpc::MetadataCredentialsPlugin {
 public:
  // `path` may be empty.
  Bearer(std::string token, std::string path)
      : token_(std::move(token)), path_(std::move(path)) {}

  bool IsBlocking() const override { return false; }
  const char* GetType() const override { return "posenc-token"; }

  grpc::Status GetMetadata(
      grpc::string_ref, grpc::string_ref, const grpc::AuthContext&,
      std::multimap<grpc::string, grpc::string>* metadata) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const absl::Time now = absl::Now();
    if (!path_.empty() && now - checked_ >= kCheckInterval) {
      checked_ = now;
      const File file = Stamp();
      if (file != file_) {
        auto fresh = ReadToken(path_);
        if (fresh.ok()) {
          token_ = *std::move(fresh);
          file_ = file;
        }
      }
    }
    metadata->emplace("authorization", absl::StrCat("Bearer ", token_));
    return grpc::Status::OK;
  }

  grpc::string DebugString() override { return "posenc-token"; }

 private:
  using File = std::pair<ino_t, absl::Time>;

  File Stamp() const {
    struct stat file = {};
    if (path_.empty() || stat(path_.c_str(), &file) != 0) return {};
    return {file.st_ino, absl::TimeFromTimespec(file.st_mtim)};
  }

  std::mutex mutex_;
  std::string token_;
  const std::string path_;
  absl::Time checked_;
  File file_;  // state when token_ was read; empty before the first check
};

// Kinds of addresses on this machine. kNo: the target's text does not show that
// the target is on this machine.
enum class Local { kNo, kTcp, kUnix };

bool IsLoopback(absl::string_view address) {
  const std::size_t colon = address.rfind(':');
  absl::string_view host = address.substr(0, colon);
  if (absl::StartsWith(address, "[")) {
    host = address.substr(0, address.find(']') + 1);
  }
  return host == "localhost" || host == "[::1]" ||
         (absl::StartsWith(host, "127.") &&
          host.find_first_not_of("0123456789.") == absl::string_view::npos);
}

Local WhereIs(absl::string_view target) {
  if (IsUnix(target)) return Local::kUnix;
  for (const absl::string_view scheme : {"dns:///", "dns:", "ipv4:", "ipv6:"}) {
    if (absl::ConsumePrefix(&target, scheme)) break;
  }
  const std::vector<absl::string_view> addresses = absl::StrSplit(target, ',');
  return std::all_of(addresses.begin(), addresses.end(), IsLoopback)
             ? Local::kTcp
             : Local::kNo;
}

}  // namespace

absl::StatusOr<ChannelSecurity> ChannelSecurity::Of(
    const ClientOptions& options) {
  const absl::Status target = CheckTarget(options.target);
  if (!target.ok()) return target;
  const absl::Status config = CheckServiceConfig(options);
  if (!config.ok()) return config;
  ChannelSecurity security;
  const bool with_token = !options.token.empty() || !options.token_file.empty();
  grpc_security_level level = GRPC_PRIVACY_AND_INTEGRITY;
  if (options.tls.has_value()) {
    if (options.credentials != nullptr) {
      return WrongArgument("tls", "excludes credentials");
    }
    const auto ssl = ReadTls(*options.tls);
    if (!ssl.ok()) return ssl.status();
    security.credentials_ = grpc::SslCredentials(*ssl);
    security.server_name_ = options.tls->server_name;
  } else if (options.credentials != nullptr) {
    security.credentials_ = options.credentials;
  } else if (!with_token) {
    security.credentials_ = grpc::InsecureChannelCredentials();
  } else {
    const Local local = WhereIs(options.target);
    if (local == Local::kNo) {
      return WrongArgument(options.token.empty() ? "token_file" : "token",
                           absl::StrCat("would be sent in the clear to ",
                                        options.target, "; must have TLS"));
    }
    // These credentials send plaintext, and gRPC closes their connections to
    // other machines.
    security.credentials_ = grpc::experimental::LocalCredentials(
        local == Local::kUnix ? UDS : LOCAL_TCP);
    level = GRPC_SECURITY_NONE;
  }
  if (!with_token) return security;
  if (!options.token.empty() && !options.token_file.empty()) {
    return WrongArgument("token_file", "excludes token");
  }
  const auto token = options.token.empty() ? ReadToken(options.token_file)
                                           : CheckToken("token", options.token);
  if (!token.ok()) return token.status();
  security.credentials_ = grpc::CompositeChannelCredentials(
      security.credentials_,
      grpc::experimental::MetadataCredentialsFromPlugin(
          std::make_unique<Bearer>(*token, options.token_file), level));
  if (security.credentials_ == nullptr) {
    return WrongArgument("credentials", "carry no token; must be secure");
  }
  return security;
}

std::shared_ptr<grpc::Channel> ChannelSecurity::CreateChannel(
    const std::string& target, grpc::ChannelArguments arguments) const {
  if (!server_name_.empty()) arguments.SetSslTargetNameOverride(server_name_);
  return grpc::CreateCustomChannel(target, credentials_, arguments);
}

}  // namespace posenc
