#include "tests/fuzz/text_seeds.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace posenc::fuzz {
namespace {

namespace fs = std::filesystem;

void Write(const fs::path& folder, const char* name, const std::string& text) {
  fs::create_directories(folder);
  std::ofstream(folder / name, std::ios::binary) << text;
}

void Demand(bool holds) {
  if (!holds) std::abort();
}

std::string TakeText(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<std::size_t>(size));
  BIO_free(bio);
  return text;
}

// Returns a self-signed certificate, its key, and the certificate again as the
// client CA. It is valid in 1970, the time of certificate_fuzz.cc.
std::string Identity() {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = X509_new();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  ASN1_TIME_set_string(X509_getm_notBefore(certificate), "600101000000Z");
  ASN1_TIME_set_string(X509_getm_notAfter(certificate), "491231000000Z");
  X509_NAME* const name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("fuzz"), -1,
                             -1, 0);
  X509_set_issuer_name(certificate, name);
  X509_set_pubkey(certificate, key);
  Demand(X509_sign(certificate, key, EVP_sha256()) > 0);
  BIO* bio = BIO_new(BIO_s_mem());
  Demand(PEM_write_bio_X509(bio, certificate) == 1);
  const std::string certificate_text = TakeText(bio);
  bio = BIO_new(BIO_s_mem());
  Demand(PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr,
                                  nullptr) == 1);
  const std::string key_text = TakeText(bio);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return certificate_text + '\0' + key_text + '\0' + certificate_text;
}

}  // namespace

void WriteTexts(const fs::path& out) {
  Write(out / "certificate", "identity", Identity());
  Write(out / "config", "kinds",
        "# One key of each kind.\n"
        "listen = [\"127.0.0.1:50051\", \"[::1]:0\", \"unix:/run/posenc\"]\n"
        "max-request-bytes = \"512MiB\"\n"
        "default-deadline = \"1h30m\"\n"
        "threads = 3\n"
        "reflection = false\n"
        "log-format = \"text\"\n"
        "log-calls = 0.25\n"
        "shared-memory-uid = [\"1000\", \"1001\"]\n"
        "admin-host = []\n");
  const std::string file =
      "# NAME TOKEN\n"
      "trainer secret methods=ApplyRope,ApplyRopeStream\n"
      "trainer sha256:" +
      std::string(64, '0') +
      " expires=2027-01-31T00:00:00Z\n"
      "notebook other in-flight-bytes=64MiB\n";
  Write(out / "token", "allowed", "Bearer secret" + ('\0' + file));
  Write(out / "token", "unknown", "Bearer else" + ('\0' + file));
  Write(out / "admin", "get",
        "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9090\r\n"
        "Accept-Encoding: br, gzip;q=0.5\r\nSec-Fetch-Site: none\r\n\r\n");
  Write(out / "admin", "old", "GET /readyz HTTP/1.0\r\n\r\n");
  Write(out / "admin", "call",
        "POST /config HTTP/1.1\r\nHost: posenc\r\n"
        "Origin: http://posenc\r\nContent-Type: application/json\r\n"
        "Authorization: Bearer secret\r\nX-Request-Id: one\r\n"
        "Content-Length: 2\r\n\r\n{}");
  Write(out / "admin", "chunked",
        "POST /metrics HTTP/1.1\r\nHost: posenc\r\n"
        "Content-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n");
}

}  // namespace posenc::fuzz
