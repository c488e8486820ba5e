#include "tests/proto/breaking.h"

#include <map>

namespace posenc {
namespace {

namespace pb = google::protobuf;

// Messages, enums and services by full name, in any file.
struct Names {
  std::map<std::string, const pb::DescriptorProto*> messages;
  std::map<std::string, const pb::EnumDescriptorProto*> enums;
  std::map<std::string, const pb::ServiceDescriptorProto*> services;

  explicit Names(const pb::FileDescriptorSet& set) {
    for (const pb::FileDescriptorProto& file : set.file()) {
      // Do not check imports from other projects.
      if (file.package().rfind("posenc.", 0) != 0) continue;
      const std::string prefix = file.package() + ".";
      for (const auto& message : file.message_type()) Add(prefix, message);
      for (const auto& type : file.enum_type()) {
        enums[prefix + type.name()] = &type;
      }
      for (const auto& service : file.service()) {
        services[prefix + service.name()] = &service;
      }
    }
  }

  void Add(const std::string& prefix, const pb::DescriptorProto& message) {
    const std::string name = prefix + message.name();
    messages[name] = &message;
    for (const auto& nested : message.nested_type()) Add(name + ".", nested);
    for (const auto& type : message.enum_type()) {
      enums[name + "." + type.name()] = &type;
    }
  }
};

// Returns a field's name in JSON, which protoc writes.
std::string JsonName(const pb::FieldDescriptorProto& field) {
  return field.has_json_name() ? field.json_name() : field.name();
}

// Returns "optional .posenc.v1.Tensor", with everything that affects the wire
// format.
std::string TypeOf(const pb::FieldDescriptorProto& field) {
  std::string type = pb::FieldDescriptorProto::Label_Name(field.label()) + " " +
                     pb::FieldDescriptorProto::Type_Name(field.type());
  if (!field.type_name().empty()) type += " " + field.type_name();
  if (field.proto3_optional()) type += " with presence";
  if (field.options().has_packed()) {
    type += field.options().packed() ? " packed" : " unpacked";
  }
  return type;
}

// Returns the oneof of a field; empty without one (synthetic ones do not
// count).
std::string OneofOf(const pb::DescriptorProto& message,
                    const pb::FieldDescriptorProto& field) {
  return field.has_oneof_index() && !field.proto3_optional()
             ? message.oneof_decl(field.oneof_index()).name()
             : "";
}

class Comparison {
 public:
  std::vector<std::string> breaks;

  void Same(const std::string& where, const std::string& old,
            const std::string& now) {
    if (old != now) breaks.push_back(where + ": was " + old + ", is " + now);
  }
  void Gone(const std::string& where) { breaks.push_back(where + ": is gone"); }

  void Message(const std::string& name, const pb::DescriptorProto& old,
               const pb::DescriptorProto& now) {
    for (const pb::FieldDescriptorProto& field : old.field()) {
      const std::string where = name + "." + field.name();
      const pb::FieldDescriptorProto* same = nullptr;
      for (const pb::FieldDescriptorProto& other : now.field()) {
        if (other.number() == field.number()) same = &other;
      }
      if (same == nullptr) {
        Gone(where + " = " + std::to_string(field.number()));
        continue;
      }
      Same(where, field.name(), same->name());
      Same(where + " in JSON", JsonName(field), JsonName(*same));
      Same(where, TypeOf(field), TypeOf(*same));
      Same(where + ", its oneof", "\"" + OneofOf(old, field) + "\"",
           "\"" + OneofOf(now, *same) + "\"");
    }
  }

  void Enum(const std::string& name, const pb::EnumDescriptorProto& old,
            const pb::EnumDescriptorProto& now) {
    for (const pb::EnumValueDescriptorProto& value : old.value()) {
      const std::string where = name + "." + value.name();
      const pb::EnumValueDescriptorProto* same = nullptr;
      for (const pb::EnumValueDescriptorProto& other : now.value()) {
        if (other.number() == value.number()) same = &other;
      }
      if (same == nullptr) {
        Gone(where + " = " + std::to_string(value.number()));
      } else {
        Same(where, value.name(), same->name());
      }
    }
  }

  void Service(const std::string& name, const pb::ServiceDescriptorProto& old,
               const pb::ServiceDescriptorProto& now) {
    for (const pb::MethodDescriptorProto& method : old.method()) {
      const std::string where = name + "." + method.name();
      const pb::MethodDescriptorProto* same = nullptr;
      for (const pb::MethodDescriptorProto& other : now.method()) {
        if (other.name() == method.name()) same = &other;
      }
      if (same == nullptr) {
        Gone(where);
      } else {
        Same(where, Signature(method), Signature(*same));
      }
    }
  }

 private:
  static std::string Signature(const pb::MethodDescriptorProto& method) {
    return std::string(method.client_streaming() ? "stream " : "") +
           method.input_type() + " -> " +
           (method.server_streaming() ? "stream " : "") + method.output_type();
  }
};

}  // namespace

std::vector<std::string> Breaks(const pb::FileDescriptorSet& old_set,
                                const pb::FileDescriptorSet& now_set) {
  Names old(old_set);
  const Names now(now_set);
  for (const auto& [name, service] : old.services) {
    for (const pb::MethodDescriptorProto& method : service->method()) {
      if (!method.client_streaming()) continue;
      // Types are written with a dot in front.
      old.messages.erase(method.input_type().substr(1));
      old.messages.erase(method.output_type().substr(1));
    }
  }
  Comparison comparison;
  const auto compare = [&comparison](const auto& from, const auto& to,
                                     auto each) {
    for (const auto& [name, descriptor] : from) {
      const auto same = to.find(name);
      if (same == to.end()) {
        comparison.Gone(name);
      } else {
        (comparison.*each)(name, *descriptor, *same->second);
      }
    }
  };
  compare(old.messages, now.messages, &Comparison::Message);
  compare(old.enums, now.enums, &Comparison::Enum);
  compare(old.services, now.services, &Comparison::Service);
  return comparison.breaks;
}

}  // namespace posenc
