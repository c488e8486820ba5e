// Refused certificate files, and the texts of their errors.

#include "server/transport/certificates.h"

#include <sys/stat.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "tests/fixtures/certificates.h"
#include "tests/fixtures/directory.h"

namespace posenc::server {
namespace {

using test::Authority;
using test::CertificateShape;
using test::Identity;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string Error(const std::string& chain, const std::string& key,
                  const std::string& client_ca = "") {
  const auto result = CheckCertificates(chain, key, client_ca, absl::Now());
  if (result.ok()) return "";
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(result.status().message());
  EXPECT_THAT(message, Not(HasSubstr("BEGIN")));
  return message;
}

std::string Error(const Identity& identity) {
  return Error(identity.cert, identity.key);
}

class CertificatesTest : public testing::Test {
 protected:
  Identity Issue(long begins_in, long ends_in) const {
    CertificateShape shape;
    shape.begins_in = begins_in;
    shape.ends_in = ends_in;
    return root_.Issue(shape);
  }

  const Authority root_{"root"};
  const Authority middle_{"middle", &root_};
  const Identity good_ = root_.Issue();
};

TEST_F(CertificatesTest, TakesACertificateAndItsKey) {
  EXPECT_EQ(Error(good_), "");
  EXPECT_EQ(Error(good_.cert, good_.key, root_.cert()), "");
}

TEST_F(CertificatesTest, TakesAChainInOrderAndNoOther) {
  const Identity leaf = middle_.Issue();
  EXPECT_EQ(Error(leaf.cert + middle_.cert(), leaf.key), "");
  EXPECT_EQ(Error(leaf.cert + middle_.cert() + root_.cert(), leaf.key), "");
  EXPECT_THAT(Error(leaf.cert + root_.cert(), leaf.key),
              HasSubstr("certificate 2 did not issue 1"));
  EXPECT_THAT(Error(middle_.cert() + leaf.cert, leaf.key),
              HasSubstr("certificate 2 did not issue 1"));
}

TEST_F(CertificatesTest, TellsWhenTheFirstOfTheChainExpires) {
  const Identity leaf = Issue(-60, 600);
  const auto loaded =
      CheckCertificates(leaf.cert + root_.cert(), leaf.key, "", absl::Now());
  ASSERT_TRUE(loaded.ok());
  const double left = absl::ToDoubleSeconds(loaded->not_after - absl::Now());
  EXPECT_GT(left, 500);
  EXPECT_LE(left, 600);
}

TEST_F(CertificatesTest, RefusesCertificatesOutOfTheirTime) {
  EXPECT_THAT(Error(Issue(-7200, -3600)),
              StartsWith("--tls-cert: certificate 1 has expired on 20"));
  EXPECT_THAT(Error(Issue(3600, 7200)),
              StartsWith("--tls-cert: certificate 1 is not valid before 20"));
}

TEST_F(CertificatesTest, RefusesAKeyOfAnotherCertificate) {
  EXPECT_EQ(Error(good_.cert, root_.Issue().key),
            "--tls-key: is not the key of the certificate");
}

TEST_F(CertificatesTest, RefusesTextThatIsNotPem) {
  for (const std::string& text :
       {std::string("garbage"), std::string(), std::string(1000, '\0'),
        std::string("-----BEGIN CERTIFICATE-----\n")}) {
    EXPECT_THAT(Error(text, good_.key), StartsWith("--tls-cert: "));
    EXPECT_THAT(Error(good_.cert, text), StartsWith("--tls-key: "));
    if (!text.empty()) {
      EXPECT_THAT(Error(good_.cert, good_.key, text),
                  StartsWith("--tls-client-ca: "));
    }
  }
  EXPECT_THAT(Error(good_.key, good_.key), HasSubstr("holds no certificate"));
  EXPECT_THAT(Error(good_.cert, good_.cert), StartsWith("--tls-key: "));
}

TEST_F(CertificatesTest, RefusesEveryFileThatWasCut) {
  const std::string both = good_.cert + root_.cert();
  for (std::size_t i = good_.cert.size() + 30; i < both.size() - 1; i += 7) {
    EXPECT_THAT(Error(both.substr(0, i), good_.key),
                StartsWith("--tls-cert: certificate 2 cannot be read"))
        << i;
  }
  for (std::size_t i = 0; i < good_.key.size() - 2; ++i) {
    EXPECT_THAT(Error(good_.cert, good_.key.substr(0, i)),
                StartsWith("--tls-key: cannot be read"))
        << i;
  }
}

TEST_F(CertificatesTest, RefusesAKeyThatNeedsAPassphrase) {
  BIO* const in = BIO_new_mem_buf(good_.key.data(), -1);
  EVP_PKEY* const key = PEM_read_bio_PrivateKey(in, nullptr, nullptr, nullptr);
  BIO_free(in);
  BIO* const out = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(out, key, EVP_aes_128_cbc(),
                           reinterpret_cast<const unsigned char*>("secret"), 6,
                           nullptr, nullptr);
  EVP_PKEY_free(key);
  EXPECT_THAT(Error(good_.cert, test::certificates_internal::Text(out)),
              HasSubstr("without passphrase"));
}

TEST_F(CertificatesTest, RefusesCertificatesThatOpenSslRefuses) {
  CertificateShape shape;
  shape.rsa_bits = 1024;
  EXPECT_THAT(Error(root_.Issue(shape)), HasSubstr("ee key too small"));
}

TEST_F(CertificatesTest, AClientAuthorityThatHasExpiredMayStandBesideANewOne) {
  const std::string old = Issue(-7200, -3600).cert;
  EXPECT_EQ(Error(good_.cert, good_.key, old + root_.cert()), "");
  EXPECT_THAT(Error(good_.cert, good_.key, old), HasSubstr("has expired"));
}

TEST_F(CertificatesTest, ErrorsOfFilesNameThem) {
  const test::Directory files;
  const auto error = [](const TlsFiles& tls) {
    return std::string(LoadCertificates(tls, absl::Now()).status().message());
  };
  TlsFiles tls = {files.Write("cert", good_.cert),
                  files.Write("key", good_.key), ""};
  EXPECT_EQ(error(tls), "");
  files.Write("key", root_.Issue().key);
  EXPECT_EQ(error(tls), absl::StrCat("--tls-key: ", tls.key,
                                     ": is not the key of the certificate"));
  files.Write("key", "");
  EXPECT_EQ(error(tls), absl::StrCat("--tls-key: ", tls.key, ": is empty"));
  files.Write("cert", std::string((1 << 20) + 1, 'x'));
  EXPECT_EQ(error(tls),
            absl::StrCat("--tls-cert: ", tls.cert, ": is larger than 1 MiB"));
  tls.cert = files.Path("none");
  EXPECT_EQ(error(tls), absl::StrCat("--tls-cert: ", tls.cert,
                                     ": No such file or directory"));
  tls.cert = files.Path("");
  EXPECT_EQ(error(tls),
            absl::StrCat("--tls-cert: ", tls.cert, ": Is a directory"));
  ASSERT_EQ(mkfifo(files.Path("pipe").c_str(), 0600), 0);
  tls.cert = files.Path("pipe");
  EXPECT_EQ(error(tls), absl::StrCat("--tls-cert: ", tls.cert, ": is empty"));
}

}  // namespace
}  // namespace posenc::server
