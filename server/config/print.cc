#include "server/config/print.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/simd/dispatch.h"
#include "grpcpp/grpcpp.h"
#include "server/base/version.h"
#include "server/scheduling/limits.h"
#include "server/transport/connection_limits.h"

namespace posenc::server {

namespace {

// Replaces values of 0 by the values that the running server uses.
Config Chosen(Config config) {
  config.server.limits = WithDefaults(config.server.limits);
  config.server.connections = WithDefaults(config.server.connections);
  return config;
}

}  // namespace

std::string ConfigText(const LoadedConfig& loaded) {
  const Config chosen = Chosen(loaded.config);
  std::string text = absl::StrCat("# posencd ", kVersion, "\n");
  for (std::size_t i = 0; i < Keys().size(); ++i) {
    const Key& key = Keys()[i];
    // A file cannot name another file.
    if (&key == FindKey("config")) continue;
    const std::string given = KeyText(key, loaded.config);
    const std::string used = KeyText(key, chosen);
    // If an empty value is an error, a key without a value is written as a
    // comment.
    const bool none = key.no_empty && given == "\"\"";
    absl::StrAppend(&text, none ? "# " : "", key.name, " = ", given, "  # ",
                    loaded.sources[i]);
    if (used != given) {
      absl::StrAppend(&text, "; chosen automatically: ", used);
    } else if (*key.default_means && (given == "0" || given == "\"\"")) {
      absl::StrAppend(&text, "; ", key.default_means);
    }
    text += '\n';
  }
  return text;
}

std::string ValueText(const Key& key) {
  return key.kind == KeyKind::kSwitch ? "on|off" : key.value;
}

std::string DefaultText(const Key& key) {
  if (*key.default_means != '\0') return key.default_means;
  const std::string text = KeyText(key, Config());
  if (key.kind == KeyKind::kSwitch) return text == "true" ? "on" : "off";
  return absl::StrReplaceAll(text, {{"\"", ""}, {"[", ""}, {"]", ""}});
}

std::string KeysTable() {
  std::string table =
      "| key | meaning | default | SIGHUP |\n|---|---|---|---|\n";
  for (const Key& key : Keys()) {
    std::string value = DefaultText(key);
    // Defaults that are words are not formatted as code.
    if (*key.default_means == '\0' && !value.empty()) {
      value = absl::StrCat("`", value, "`");
    }
    absl::StrAppend(&table, "| `", key.name, " ",
                    absl::StrReplaceAll(ValueText(key), {{"|", "\\|"}}), "` | ",
                    key.meaning,
                    key.kind == KeyKind::kList ? " May be repeated." : "",
                    " | ", value, " | ", key.reloads ? "yes" : "", " |\n");
  }
  return table;
}

std::string VersionText() {
  return absl::StrCat("posencd ", kVersion, "\ngRPC ", grpc::Version(),
                      ", compiler ", __VERSION__, ", instruction set ",
                      simd::ActiveKernels().name);
}

}  // namespace posenc::server
