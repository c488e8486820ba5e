#include "server/reload.h"

#include <vector>

#include "absl/strings/str_join.h"
#include "server/config/changes.h"

namespace posenc::server {
namespace {

void WriteRefusal(const absl::Status& status, Log* log) {
  log->Write(LogLevel::kError,
             "configuration not reloaded; everything stays as it was",
             {{"error", status.message()}});
}

}  // namespace

void Reload(const absl::StatusOr<LoadedConfig>& fresh, LoadedConfig* running,
            const Reloadable& to) {
  if (!fresh.ok()) return WriteRefusal(fresh.status(), to.log);
  LoadedConfig next = *running;
  const ConfigChanges changes = TakeChanges(fresh->config, &next.config);
  // The new values are checked together with the old values of keys that need a
  // restart. Certificates and tokens are read again whether or not a key
  // changed; an error in them does not keep other keys from changing.
  const absl::Status status =
      WithSource(to.server->Reload(next.config.server), *fresh);
  if (!status.ok()) return WriteRefusal(status, to.log);
  for (std::size_t i = 0; i < Keys().size(); ++i) {
    if (Keys()[i].reloads) next.sources[i] = fresh->sources[i];
  }
  *running = next;
  const LogOptions& log = running->config.log;
  // The line is written if the old or the new level admits it.
  const bool was = to.log->Writes(LogLevel::kInfo);
  if (!was) to.log->set_level(*ParseLogLevel(log.level));
  to.calls->set_fraction(log.calls);
  std::vector<LogField> fields;
  fields.reserve(fields.size() + changes.taken.size());
  for (const ConfigChange& change : changes.taken) {
    fields.push_back({change.key, absl::string_view(change.values)});
  }
  to.log->Write(LogLevel::kInfo, "configuration reloaded", fields);
  if (!changes.ignored.empty()) {
    const std::string keys = absl::StrJoin(changes.ignored, ", ");
    to.log->Write(LogLevel::kWarning,
                  "some keys that changed need a restart; they keep their "
                  "values",
                  {{"keys", absl::string_view(keys)}});
  }
  to.log->set_level(*ParseLogLevel(log.level));
}

}  // namespace posenc::server
