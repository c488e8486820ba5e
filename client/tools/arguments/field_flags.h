// Flags that fill in a message of the contract. A row describes a flag and its
// field.
//
// Some flags are kinds (--alibi is a kind of bias), and exactly one kind must
// be given. Other flags are details of a kind, or are independent. CLI11
// enforces that kinds exclude each other, and that a detail needs its kind. The
// server, not this class, checks values. An error of the server names a field,
// and FlagOfField() (misspelt.h) finds the flag of that field.

#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/tools/flags/command_line.h"
#include "google/protobuf/message.h"

namespace posenc::cli {

// The value of `of` for an independent flag.
inline constexpr char kAlone[] = "";

struct FieldFlag {
  const char* name;  // "--alibi"
  // A path in the message, "alibi.heads". Null: the caller reads the flag with
  // Text().
  const char* field;
  // The name of the value in --help; null for a flag without a value. The name
  // also selects how the value is parsed: LIST is "1,2", EXTENTS is "2x4", FILE
  // is a file with one tensor or with all tensors of a message.
  const char* type;
  const char* help;
  // The kind to which the flag belongs as a detail. If a flag belongs to two
  // kinds, `of` has the names of both, and `field` has two paths in the same
  // order. Null if the flag is a kind.
  const char* of = nullptr;
  bool required = false;  // the kind or the command needs the flag
  // The field's value if the flag is absent, as a text; null: unset.
  const char* default_value = nullptr;
};

class FieldFlags {
 public:
  // Makes flags that set fields of a message of this type.
  explicit FieldFlags(const google::protobuf::Descriptor* type) : type_(type) {}

  // Adds the flags. `group` is the heading of the flags in --help; if it is
  // empty, the flags have CLI11's own heading. The row of a kind (--alibi) must
  // come before the rows of the flags whose `of` names this kind. `prefix`
  // ("new-") is put before all names, but rows and callers use the names
  // without the prefix. This object must not move afterwards.
  void Add(CLI::App* app, const std::string& group,
           absl::Span<const FieldFlag> rows, const std::string& prefix = "");

  // Given() returns true if the flag is given. Text() returns the value of a
  // flag that accepts any text.
  bool Given(absl::string_view name) const;
  const std::string& Text(absl::string_view name) const;

  // Returns the given flags without dashes, and their values: "profile vllm".
  std::vector<std::string> Texts() const;

  // True if no kind is given.
  bool Empty() const;

  // Sets the fields of the given flags, and reads the files that the flags name
  // into the message. Errors of flags have exit code 2, and errors of files
  // have exit code 3. A command line without a kind is an error of flags.
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
