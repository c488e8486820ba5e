// The descriptors that a server shows to tools: those of the contract, of
// gRPC's own services, and of the details of errors.

#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "google/protobuf/descriptor.h"

namespace posenc::server {

// Never changes once it is made: requests of peers, even with invented names,
// add nothing to it.
class ReflectedFiles {
 public:
  // more: services beside the contract's and gRPC's own.
  explicit ReflectedFiles(
      const std::vector<const google::protobuf::ServiceDescriptor*>& more);

  // Returns the full names of the services.
  const std::vector<std::string>& services() const { return services_; }

  // A file and all its imports, as serialized FileDescriptorProtos with JSON
  // names. Named() takes the file's name; Holding() the full name of a service,
  // method, message, field, enum or value in it. Null if there is none.
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
  // Points into by_name_, whose nodes do not move.
  std::unordered_map<std::string, const Files*> by_symbol_;
};

}  // namespace posenc::server
