// Flags that fill in a message of the contract. Each is a row, which says which
// field it stands for.
//
// Some flags are kinds, of which exactly one is given; others are details of a
// kind, or stand alone. Which go together is told to CLI11: kinds exclude each
// other, and a detail needs its kind. Values are not judged here: the server
// knows what each field may be, and its errors name the field as the flag does.

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

// `of` of a flag that stands alone.
inline constexpr char kAlone[] = "";

struct FieldFlag {
  const char* names;  // "--alibi", or two, "--to,--padded-length"
  // A path in the message, "alibi.heads". Null: whoever reads the message asks
  // for the Text().
  const char* field;
  // What --help calls the value, null for a flag without one. It also says how
  // a text is read: a LIST "1,2", EXTENTS "2x4", a FILE with a tensor, or with
  // all tensors of a message.
  const char* type;
  const char* help;
  // The kind that this is a detail of; of a flag of two kinds both, and in the
  // same order its two fields. Null for a kind.
  const char* of = nullptr;
  bool required = false;  // by the kind, or by the command
  // The field's value without the flag, as a text; null: unset.
  const char* usual = nullptr;
};

class FieldFlags {
 public:
  // The flags set fields of a message of this type.
  explicit FieldFlags(const google::protobuf::Descriptor* type) : type_(type) {}

  // Adds the flags under a heading of --help; empty: CLI11's own. Each row
  // stands after that of its kind. `prefix` stands in front of all names
  // ("new-"), which rows and callers leave out. This must stay where it is from
  // then on.
  void Add(CLI::App* app, const std::string& group,
           absl::Span<const FieldFlag> rows, const std::string& prefix = "");

  // Whether a flag is given, by the first of its names; and the text of one
  // that takes any.
  bool Given(absl::string_view name) const;
  const std::string& Text(absl::string_view name) const;

  // True if no kind is given.
  bool Empty() const;

  // Sets the fields of the flags that are given. Reads the files that they
  // name, into the message. Errors have exit code 2 (flags, and that no kind of
  // several is given) or 3 (files).
  absl::Status Read(google::protobuf::Message* message) const;

 private:
  using Value =
      std::variant<std::string, bool, std::int32_t, std::int64_t, double>;
  struct Flag {
    FieldFlag row;
    std::string name;  // the first of its names, with the prefix
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
