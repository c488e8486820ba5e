// posenc-proto-lint SET [RELEASED]: checks the packages posenc.* of a
// descriptor set that protoc made with --include_source_info, and prints every
// fault, and every change that would break clients of the contract in the set
// RELEASED.
//
// Names and structure follow the common protobuf style (buf's STANDARD
// category); two rules are the contract's own: every RPC has a comment on its
// function, and on retries.

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "tests/proto/breaking.h"

namespace {

namespace protobuf = google::protobuf;

class Linter {
 public:
  int faults() const { return faults_; }

  void File(const protobuf::FileDescriptor& file) {
    std::string directory(file.name().substr(0, file.name().rfind('/')));
    std::replace(directory.begin(), directory.end(), '/', '.');
    if (file.package() != directory) {
      Fault(file.name(),
            absl::StrCat("package ", file.package(), " is not its path"));
    }
    const protobuf::FileOptions& options = file.options();
    if (options.go_package().empty()) Fault(file.name(), "has no go_package");
    if (options.java_package() != absl::StrCat("io.github.", file.package())) {
      Fault(file.name(), "java_package is not io.github. and its package");
    }
    if (!options.java_multiple_files()) {
      Fault(file.name(), "lacks java_multiple_files");
    }
    for (int i = 0; i < file.service_count(); ++i) Service(*file.service(i));
    for (int i = 0; i < file.message_type_count(); ++i) {
      Message(*file.message_type(i));
    }
    for (int i = 0; i < file.enum_type_count(); ++i) Enum(*file.enum_type(i));
  }

 private:
  void Fault(absl::string_view where, absl::string_view what) {
    std::cout << where << ": " << what << "\n";
    ++faults_;
  }

  // Returns the words of a name, joined by "_": "RoPEMixed2" gives
  // "ro_pe_mixed2".
  static std::string Snake(absl::string_view name, bool upper) {
    std::string snake;
    for (std::size_t i = 0; i < name.size(); ++i) {
      const auto c = static_cast<unsigned char>(name[i]);
      if (i > 0 && std::isupper(c)) snake += '_';
      snake += static_cast<char>(upper ? std::toupper(c) : std::tolower(c));
    }
    return snake;
  }

  void Camel(absl::string_view where, absl::string_view name) {
    if (!std::isupper(static_cast<unsigned char>(name[0])) ||
        absl::StrContains(name, '_')) {
      Fault(where, "is not UpperCamelCase");
    }
  }

  void Service(const protobuf::ServiceDescriptor& service) {
    const std::string suffix = "Service";
    const absl::string_view name = service.name();
    Camel(service.full_name(), name);
    if (name.size() <= suffix.size() ||
        name.substr(name.size() - suffix.size()) != suffix) {
      Fault(service.full_name(), "does not end in Service");
    }
    for (int i = 0; i < service.method_count(); ++i) Rpc(*service.method(i));
  }

  void Rpc(const protobuf::MethodDescriptor& rpc) {
    const absl::string_view where = rpc.full_name();
    Camel(where, rpc.name());
    if (rpc.input_type()->name() != absl::StrCat(rpc.name(), "Request")) {
      Fault(where, absl::StrCat("takes ", rpc.input_type()->name(), ", not ",
                                rpc.name(), "Request"));
    }
    if (rpc.output_type()->name() != absl::StrCat(rpc.name(), "Response")) {
      Fault(where, absl::StrCat("returns ", rpc.output_type()->name(), ", not ",
                                rpc.name(), "Response"));
    }
    protobuf::SourceLocation location;
    if (!rpc.GetSourceLocation(&location) ||
        location.leading_comments.find_first_not_of(" \n") ==
            std::string::npos) {
      Fault(where, "has no comment");
    }
    if (rpc.options().idempotency_level() ==
        protobuf::MethodOptions::IDEMPOTENCY_UNKNOWN) {
      Fault(where, "has no idempotency_level");
    }
  }

  void Field(absl::string_view where, absl::string_view name) {
    const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
      return std::islower(static_cast<unsigned char>(c)) ||
             std::isdigit(static_cast<unsigned char>(c)) || c == '_';
    });
    if (!plain || name.front() == '_' || name.back() == '_' ||
        absl::StrContains(name, "__")) {
      Fault(where, "is not lower_snake_case");
    }
  }

  void Message(const protobuf::Descriptor& message) {
    if (message.options().map_entry()) return;
    Camel(message.full_name(), message.name());
    for (int i = 0; i < message.field_count(); ++i) {
      Field(message.field(i)->full_name(), message.field(i)->name());
    }
    for (int i = 0; i < message.real_oneof_decl_count(); ++i) {
      Field(message.oneof_decl(i)->full_name(), message.oneof_decl(i)->name());
    }
    for (int i = 0; i < message.nested_type_count(); ++i) {
      Message(*message.nested_type(i));
    }
    for (int i = 0; i < message.enum_type_count(); ++i) {
      Enum(*message.enum_type(i));
    }
  }

  void Enum(const protobuf::EnumDescriptor& type) {
    const std::string prefix = Snake(type.name(), true) + "_";
    Camel(type.full_name(), type.name());
    for (int i = 0; i < type.value_count(); ++i) {
      const protobuf::EnumValueDescriptor& value = *type.value(i);
      if (!absl::StartsWith(value.name(), prefix)) {
        Fault(value.full_name(), "does not start with " + prefix);
      }
      const bool unspecified = value.name() == prefix + "UNSPECIFIED";
      if ((value.number() == 0) != unspecified) {
        Fault(value.full_name(),
              "is not " + prefix + "UNSPECIFIED exactly where it is 0");
      }
    }
  }

  int faults_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  protobuf::FileDescriptorSet set, released;
  const auto read = [](const char* path, protobuf::FileDescriptorSet* into) {
    std::ifstream input(path, std::ios::binary);
    return input && into->ParseFromIstream(&input) && into->file_size() > 0;
  };
  if (argc < 2 || argc > 3 || !read(argv[1], &set) ||
      (argc == 3 && !read(argv[2], &released))) {
    std::cerr << "usage: posenc-proto-lint DESCRIPTOR_SET [RELEASED]\n";
    return 2;
  }
  protobuf::DescriptorPool pool;
  Linter linter;
  int files = 0;
  for (const protobuf::FileDescriptorProto& proto : set.file()) {
    const protobuf::FileDescriptor* file = pool.BuildFile(proto);
    if (file == nullptr) return 2;
    // Do not check imports from other projects.
    if (absl::StartsWith(file->package(), "google.")) continue;
    linter.File(*file);
    ++files;
  }
  const std::vector<std::string> breaks = posenc::Breaks(released, set);
  for (const std::string& line : breaks) {
    std::cout << "breaks clients: " << line << "\n";
  }
  std::cout << files << " files, " << linter.faults() << " faults\n";
  return linter.faults() == 0 && breaks.empty() && files > 0 ? 0 : 1;
}
