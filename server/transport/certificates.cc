#include "server/transport/certificates.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <vector>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "server/base/small_file.h"

namespace posenc::server {
namespace {

constexpr char kCert[] = "--tls-cert";
constexpr char kKey[] = "--tls-key";
constexpr char kClientCa[] = "--tls-client-ca";

template <auto release>
struct Release {
  template <typename T>
  void operator()(T* object) const {
    release(object);
  }
};
using Bio = std::unique_ptr<BIO, Release<BIO_free>>;
using X509Ptr = std::unique_ptr<X509, Release<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Release<EVP_PKEY_free>>;
using ContextPtr = std::unique_ptr<SSL_CTX, Release<SSL_CTX_free>>;

Bio Reader(absl::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Returns no passphrase, because a server cannot ask for a passphrase.
int NoPassphrase(char*, int, int, void*) { return 0; }

// Returns OpenSSL's last error, without its codes.
std::string Reason() {
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason == nullptr ? "unknown error" : reason;
}

absl::StatusOr<std::vector<X509Ptr>> ParseCertificates(const char* field,
                                                       absl::string_view text) {
  ERR_clear_error();
  const Bio reader = Reader(text);
  std::vector<X509Ptr> certificates;
  while (X509* const next =
             PEM_read_bio_X509(reader.get(), nullptr, NoPassphrase, nullptr)) {
    certificates.emplace_back(next);
  }
  const bool at_end =
      ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string reason = Reason();
  if (!at_end) {
    return core::FieldInvalid(field, "certificate ", certificates.size() + 1,
                              " cannot be read (", reason, "); must be PEM");
  }
  if (certificates.empty()) {
    return core::FieldInvalid(field, "holds no certificate; must be PEM");
  }
  return certificates;
}

absl::Time ToTime(const ASN1_TIME* time) {
  std::tm fields = {};
  ASN1_TIME_to_tm(time, &fields);
  return absl::FromTimeT(timegm(&fields));
}

absl::Time NotAfter(const X509Ptr& certificate) {
  return ToTime(X509_get0_notAfter(certificate.get()));
}

std::string Text(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

absl::Status CheckValidity(const char* field, std::size_t number,
                           const X509Ptr& certificate, absl::Time now) {
  const absl::Time begin = ToTime(X509_get0_notBefore(certificate.get()));
  if (now < begin) {
    return core::FieldInvalid(field, "certificate ", number,
                              " is not valid before ", Text(begin));
  }
  const absl::Time end = NotAfter(certificate);
  if (now > end) {
    return core::FieldInvalid(field, "certificate ", number, " has expired on ",
                              Text(end));
  }
  return absl::OkStatus();
}

// Checks that the chain begins with the server's certificate, and that the
// issuer of each certificate follows it.
absl::Status CheckChain(const std::vector<X509Ptr>& chain, absl::Time now) {
  for (std::size_t i = 0; i < chain.size(); ++i) {
    RETURN_IF_ERROR(CheckValidity(kCert, i + 1, chain[i], now));
    if (i > 0 &&
        X509_check_issued(chain[i].get(), chain[i - 1].get()) != X509_V_OK) {
      return core::FieldInvalid(kCert, "certificate ", i + 1, " did not issue ",
                                i, "; must be the server's, then its issuers");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<KeyPtr> ParseKey(absl::string_view text) {
  ERR_clear_error();
  const Bio reader = Reader(text);
  KeyPtr key(
      PEM_read_bio_PrivateKey(reader.get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr) {
    return core::FieldInvalid(kKey, "cannot be read (", Reason(),
                              "); must be a PEM key without passphrase");
  }
  return key;
}

// Checks that OpenSSL accepts the certificates and the key, in the same way as
// gRPC will use them.
absl::Status TryOut(const std::vector<X509Ptr>& chain, const KeyPtr& key) {
  if (X509_check_private_key(chain.front().get(), key.get()) != 1) {
    ERR_clear_error();
    return core::FieldInvalid(kKey, "is not the key of the certificate");
  }
  const ContextPtr context(SSL_CTX_new(TLS_server_method()));
  bool usable =
      context != nullptr &&
      SSL_CTX_use_certificate(context.get(), chain.front().get()) == 1 &&
      SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1;
  for (std::size_t i = 1; usable && i < chain.size(); ++i) {
    usable = SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) == 1;
  }
  return usable ? absl::OkStatus()
                : core::FieldInvalid(kCert, "OpenSSL refuses it: ", Reason());
}

// Writes the parsed certificates and the key as one PEM text for gRPC. gRPC
// would read the original text differently if a file begins with a byte order
// mark, or contains a certificate next to its key.
absl::StatusOr<std::string> PemText(const char* field,
                                    const std::vector<X509Ptr>& certificates,
                                    const KeyPtr& key = nullptr) {
  const Bio writer(BIO_new(BIO_s_mem()));
  bool written = writer != nullptr;
  if (written && key != nullptr) {
    written = PEM_write_bio_PrivateKey(writer.get(), key.get(), nullptr,
                                       nullptr, 0, nullptr, nullptr) == 1;
  }
  for (const X509Ptr& certificate : certificates) {
    written =
        written && PEM_write_bio_X509(writer.get(), certificate.get()) == 1;
  }
  if (!written) {
    return core::FieldInvalid(field, "cannot be written as PEM (", Reason(),
                              ")");
  }
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(writer.get(), &text);
  return std::string(text, static_cast<std::size_t>(bytes));
}

// One valid authority is enough, because old ones may stay during a rollout.
absl::StatusOr<std::string> CheckClientCa(absl::string_view text,
                                          absl::Time now) {
  ASSIGN_OR_RETURN(const auto authorities, ParseCertificates(kClientCa, text));
  absl::Status worst;
  for (std::size_t i = 0; i < authorities.size(); ++i) {
    worst = CheckValidity(kClientCa, i + 1, authorities[i], now);
    if (worst.ok()) return PemText(kClientCa, authorities);
  }
  return worst;
}

}  // namespace

absl::StatusOr<Certificates> CheckCertificates(absl::string_view chain_text,
                                               absl::string_view key_text,
                                               absl::string_view client_ca,
                                               absl::Time now) {
  ASSIGN_OR_RETURN(const auto chain, ParseCertificates(kCert, chain_text));
  ASSIGN_OR_RETURN(const auto key, ParseKey(key_text));
  RETURN_IF_ERROR(CheckChain(chain, now));
  RETURN_IF_ERROR(TryOut(chain, key));
  Certificates certificates;
  ASSIGN_OR_RETURN(certificates.identity, PemText(kCert, chain, key));
  if (!client_ca.empty()) {
    ASSIGN_OR_RETURN(certificates.client_ca, CheckClientCa(client_ca, now));
  }
  certificates.not_after = NotAfter(chain.front());
  for (const X509Ptr& certificate : chain) {
    certificates.not_after =
        std::min(certificates.not_after, NotAfter(certificate));
  }
  return certificates;
}

absl::StatusOr<Certificates> LoadCertificates(const TlsFiles& files,
                                              absl::Time now) {
  ASSIGN_OR_RETURN(const auto chain, ReadSmallFile(kCert, files.cert));
  ASSIGN_OR_RETURN(const auto key, ReadSmallFile(kKey, files.key));
  std::string client_ca;
  if (!files.client_ca.empty()) {
    ASSIGN_OR_RETURN(client_ca, ReadSmallFile(kClientCa, files.client_ca));
  }
  auto certificates = CheckCertificates(chain, key, client_ca, now);
  if (certificates.ok()) return certificates;
  const auto details = core::GetErrorDetails(certificates.status());
  const std::string& path = details->field == kCert  ? files.cert
                            : details->field == kKey ? files.key
                                                     : files.client_ca;
  return core::FieldInvalid(
      details->field, path, ": ",
      certificates.status().message().substr(details->field.size() + 2));
}

}  // namespace posenc::server
