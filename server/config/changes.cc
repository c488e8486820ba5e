#include "server/config/changes.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "server/config/keys.h"

namespace posenc::server {

ConfigChanges TakeChanges(const Config& fresh, Config* running) {
  ConfigChanges changes;
  Config source = fresh;  // a copy, because Key::field() needs a mutable one
  for (const Key& key : Keys()) {
    const std::string before = KeyText(key, *running);
    const std::string after = KeyText(key, fresh);
    if (before == after) continue;
    if (!key.reloads) {
      changes.ignored.emplace_back(key.name);
      continue;
    }
    changes.taken.push_back({key.name, absl::StrCat(before, " -> ", after)});
    std::visit(
        [&](auto* to) { *to = *std::get<decltype(to)>(key.field(source)); },
        key.field(*running));
  }
  return changes;
}

}  // namespace posenc::server
