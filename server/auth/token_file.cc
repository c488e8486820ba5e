#include "server/auth/token_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/error.h"
#include "server/base/small_file.h"

namespace posenc::server {
namespace {

constexpr char kFlag[] = "--token-file";

}  // namespace

absl::StatusOr<std::unique_ptr<TokenFile>> TokenFile::Load(
    const std::string& path, const std::vector<std::string>& public_methods,
    ServiceDescriptors more) {
  std::unique_ptr<TokenFile> file(new TokenFile(path, std::move(more)));
  for (const std::string& method : public_methods) {
    if (!IsRpc(method, file->more_)) {
      return core::FieldInvalid(
          "--public-methods",
          absl::StrCat("there is no RPC '", method, "'; such as ResolveRope"));
    }
    file->public_methods_.insert(method);
  }
  const absl::Status loaded = file->Reload();
  if (!loaded.ok()) return loaded;
  return file;
}

absl::Status TokenFile::Reload() {
  const auto text = ReadSmallFile(kFlag, path_);
  if (!text.ok()) return text.status();
  auto tokens = Tokens::Parse(*text, more_);
  if (!tokens.ok()) {
    return core::FieldInvalid(
        kFlag, absl::StrCat(path_, ": ", tokens.status().message()));
  }
  auto fresh = std::make_shared<const Tokens>(*std::move(tokens));
  const std::lock_guard<std::mutex> lock(mutex_);
  tokens_.swap(fresh);
  return absl::OkStatus();
}

absl::StatusOr<Caller> TokenFile::Check(absl::string_view method,
                                        absl::string_view authorization) const {
  if (public_methods_.contains(method)) return Caller();
  return tokens()->Check(method, authorization, absl::Now());
}

}  // namespace posenc::server
