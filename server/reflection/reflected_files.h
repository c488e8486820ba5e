// The descriptors that tools may ask a server for: those of the contract, of
// gRPC's own services, and of the details of errors.

#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "google/protobuf/descriptor.h"

namespace posenc::server {

// Made once and never changed: what a peer asks for leaves nothing behind,
// whatever names it makes up.
class ReflectedFiles {
 public:
  // more: services beside the contract's and gRPC's own.
  explicit ReflectedFiles(
      const std::vector<const google::protobuf::ServiceDescriptor*>& more);

  // Full names of the services.
  const std::vector<std::string>& services() const { return services_; }

  // A file and all that it imports, as serialized FileDescriptorProtos with
  // JSON names. Null if there is none of this name, or none that has something
  // of this full name: a service, method, message, field, enum or value.
  using Files = std::vector<std::string>;
  const Files* Named(const std::string& name) const;
  const Files* Holding(const std::string& symbol) const;

 private:
  void Add(const google::protobuf::FileDescriptor& file);
  void AddSymbols(const google::protobuf::Descriptor& message,
                  const Files* files);
  void AddSymbols(const google::protobuf::EnumDescriptor& type,
                  const Files* files);

  std::vector<std::string> services_;
  std::unordered_map<std::string, Files> by_name_;
  // Into by_name_, whose nodes stay where they are.
  std::unordered_map<std::string, const Files*> by_symbol_;
};

}  // namespace posenc::server
