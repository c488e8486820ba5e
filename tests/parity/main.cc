// posenc-parity RECORD [KEPT] [--list OUTCOME]: prints one table of posenc's
// answers beside transformers', and why they differ. With the kept record,
// lists changed answers of transformers. Exits with 1 if a forbidden outcome
// occurs.

#include <array>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/parity/replay.h"

namespace posenc::parity {
namespace {

using Counts = std::array<int, kOutcomes>;

void PrintRow(const std::string& name, const Counts& counts) {
  std::cout << absl::StrFormat("%-24s", name);
  for (const int count : counts) std::cout << absl::StrFormat(" %16d", count);
  std::cout << "\n";
}

// Returns the number of cases with a forbidden outcome.
int PrintTable(const Record& record, const std::string& listed) {
  std::map<std::string, Counts> rows;
  std::map<std::string, bool> agree;  // by type; true: in every spelling
  std::vector<std::pair<const Case*, Finding>> found;
  for (const Case& one : record.cases) {
    const Finding finding = Examine(one);
    const bool by_spelling = one.group == "types";
    ++rows[by_spelling ? one.group + ": " + one.name : one.group]
          [static_cast<int>(finding.outcome)];
    if (by_spelling && one.error.empty()) {
      const bool same = finding.outcome == Outcome::kAgrees ||
                        finding.outcome == Outcome::kAgreesWarned;
      const auto [it, added] = agree.try_emplace(one.model_type, same);
      if (!added) it->second = it->second && same;
    }
    found.emplace_back(&one, finding);
  }
  for (const auto& [one, finding] : found) {
    const std::string name(OutcomeName(finding.outcome));
    const bool shown =
        listed.empty()
            ? finding.outcome == Outcome::kDiffersSilent ||
                  finding.outcome == Outcome::kRefuses ||
                  finding.outcome == Outcome::kAnswersSilent ||
                  finding.outcome == Outcome::kWrongStatus
            : listed == name || listed == one->model_type || listed == "all";
    if (!shown) continue;
    std::cout << name << ": " << one->group << " " << one->model_type << " "
              << one->name << ": " << finding.why;
    if (finding.outcome == Outcome::kBothRefuse) {
      std::cout << " | " << one->error;
    }
    std::cout << "\n";
  }
  std::cout << absl::StrFormat("\n%-24s", record.versions.substr(0, 24));
  for (int i = 0; i < kOutcomes; ++i) {
    std::cout << absl::StrFormat(" %16s", OutcomeName(static_cast<Outcome>(i)));
  }
  std::cout << "\n";
  Counts total = {};
  for (const auto& [name, counts] : rows) {
    PrintRow(name, counts);
    for (int i = 0; i < kOutcomes; ++i) total[i] += counts[i];
  }
  PrintRow("all", total);
  int same = 0;
  for (const auto& [type, all] : agree) same += all ? 1 : 0;
  std::cout << "\n"
            << same << " of " << agree.size()
            << " types agree in every spelling\n";
  const auto count = [&total](Outcome outcome) {
    return total[static_cast<int>(outcome)];
  };
  return count(Outcome::kDiffersSilent) + count(Outcome::kAnswersSilent) +
         count(Outcome::kWrongStatus);
}

// Cases by group, type and name.
std::map<std::string, const Case*> ByName(const Record& record) {
  std::map<std::string, const Case*> named;
  for (const Case& one : record.cases) {
    named[one.group + " " + one.model_type + " " + one.name] = &one;
  }
  return named;
}

bool SameAnswers(const Case& a, const Case& b) {
  if (a.error.empty() != b.error.empty() ||
      a.answers.size() != b.answers.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.answers.size(); ++i) {
    if (a.answers[i].inv_freq != b.answers[i].inv_freq ||
        a.answers[i].attention_factor != b.answers[i].attention_factor) {
      return false;
    }
  }
  return true;
}

void PrintChanges(const Record& record, const Record& kept) {
  const auto now = ByName(record);
  const auto before = ByName(kept);
  std::cout << "\nagainst the kept record, " << kept.versions << ":\n";
  int changes = 0;
  for (const auto& [name, one] : now) {
    const auto it = before.find(name);
    if (it != before.end() && SameAnswers(*one, *it->second)) continue;
    std::cout << (it == before.end() ? "new: " : "answers otherwise: ") << name
              << "\n";
    ++changes;
  }
  for (const auto& [name, one] : before) {
    if (now.count(name) > 0) continue;
    std::cout << "gone: " << name << "\n";
    ++changes;
  }
  std::cout << changes << " changes\n";
}

int Main(std::vector<std::string> arguments) {
  std::string listed;
  if (arguments.size() > 2 && arguments[arguments.size() - 2] == "--list") {
    listed = arguments.back();
    arguments.resize(arguments.size() - 2);
  }
  if (arguments.empty() || arguments.size() > 2) {
    std::cerr << "posenc-parity RECORD [KEPT] [--list OUTCOME|TYPE|all]\n";
    return 2;
  }
  const auto record = ReadRecord(arguments[0]);
  if (!record.ok()) {
    std::cerr << record.status() << "\n";
    return 1;
  }
  const int never = PrintTable(*record, listed);
  if (arguments.size() == 2) {
    const auto kept = ReadRecord(arguments[1]);
    if (kept.ok()) {
      PrintChanges(*record, *kept);
    } else {
      std::cout << "no kept record\n";
    }
  }
  if (never > 0) std::cerr << never << " outcomes that may never be\n";
  return never > 0 ? 1 : 0;
}

}  // namespace
}  // namespace posenc::parity

int main(int argc, char** argv) {
  return posenc::parity::Main(std::vector<std::string>(argv + 1, argv + argc));
}
