// Flags that fill in a message of the contract. A row describes a flag and its
// field.
//
// Some flags are kinds, and exactly one kind must be given. Other flags are
// details of a kind, or are independent. CLI11 enforces this: kinds exclude
// each other, and a detail needs its kind. The server, not this class, checks
// values. The fields in its errors have the names of the flags.

#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <variant>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"

namespace posenc::cli {

// The value of `of` for an independent flag.
inline constexpr char kAlone[] = "";

struct FieldFlag {
  const char* name;  // "--alibi"
  // A path in the message, "alibi.heads". Null: the caller reads the flag with
  // Text().
  const char* field;
  // The name of the value in --help; null for a flag without a value. It also
  // selects how a text is parsed: a LIST "1,2", EXTENTS "2x4", a FILE with a
  // tensor, or with all tensors of a message.
  const char* type;
  const char* help;
  // The kind to which the flag belongs as a detail. A flag of two kinds names
  // both, and has two fields in the same order. Null if the flag is a kind.
  const char* of = nullptr;
  bool required = false;  // by the kind, or by the command
  // The field's value if the flag is absent, as a text; null: unset.
  const char* usual = nullptr;
};

class FieldFlags {
 public:
  // Makes flags that set fields of a message of this type.
  explicit FieldFlags(const google::protobuf::Descriptor* type) : type_(type) {}

  // Adds the flags under a heading of --help; empty: CLI11's own. The row of a
  // kind must come before its details. `prefix` ("new-") is put before all
  // names. Rows and callers use the names without it. This object must not move
  // afterwards.
  void Add(CLI::App* app, const std::string& group,
           absl::Span<const FieldFlag> rows, const std::string& prefix = "");

  // Given: whether a flag is given. Text: the value of a flag that accepts any
  // text.
  bool Given(absl::string_view name) const;
  const std::string& Text(absl::string_view name) const;

  // True if no kind is given.
  bool Empty() const;

  // Sets the fields of the given flags; reads the files that they name into the
  // message. Errors have exit code 2 for flags, also if no kind is given, and 3
  // for files.
  absl::Status Read(google::protobuf::Message* message) const;

 private:
  using Value =
      std::variant<std::string, bool, std::int32_t, std::int64_t, double>;
  struct Flag {
    FieldFlag row;
    std::string name;  // with the prefix
    CLI::Option* option = nullptr;
    Value value;

    bool given() const;
  };
  Value ValueOf(const FieldFlag& row) const;
  static absl::Status Set(const Flag& flag, absl::string_view path,
                          google::protobuf::Message* message);
  const Flag& Find(absl::string_view name) const;

  const google::protobuf::Descriptor* type_;
  std::string prefix_;
  std::deque<Flag> flags_;  // CLI11 writes to their values
};

}  // namespace posenc::cli
