// Keeps whole tables, as the bytes of their responses, by the content of the
// requests: equal requests have equal tables. Jobs that start together ask for
// the same one.
//
//   max_bytes   is taken out of the budget (CallBytes in limits.h), so that
//               tables and calls together stay within it
//   a call      claims a kept response as it would claim one that it computes:
//               a slow reader may hold it longer than it is kept
//
// A table is kept when it is asked for the second time. Those that are asked
// for once would push out the others.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "server/budget/admission.h"
#include "server/rpc/handler.h"

namespace posenc::server {

// Safe for many threads. Responses may outlive this object.
class TableCache {
 public:
  // max_bytes: 0 keeps nothing.
  TableCache(std::int64_t max_bytes, std::shared_ptr<Admission> admission);

  // SHA-256 of the request. Empty if its response is not to be kept: the cache
  // is off, or the request is so large that hashing it would be the work.
  std::string KeyOf(const google::protobuf::MessageLite& request) const;

  // The response to a request of this key; null if it is not here.
  std::unique_ptr<PendingResponse> Find(const std::string& key);

  // The same response, which is kept once it is computed. Outlived by this
  // object.
  std::unique_ptr<PendingResponse> Keeping(
      std::unique_ptr<PendingResponse> response, std::string key);

  struct State {
    std::int64_t bytes = 0;
    std::int64_t hits = 0, misses = 0;  // of Find(), since the start
  };
  State state() const;

 private:
  class KeptResponse;
  class KeepingResponse;

  struct Entry {
    std::string key;
    grpc::Slice response;
  };

  // Whether a response of this key was asked for before.
  bool SeenBefore(const std::string& key);
  void Insert(const std::string& key, const grpc::ByteBuffer& response);

  const std::int64_t max_bytes_;
  const std::shared_ptr<Admission> admission_;
  mutable std::mutex mutex_;
  State state_;
  std::list<Entry> entries_;  // the most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
  // Hashes of keys, each at its place modulo the size.
  std::array<std::size_t, 1024> seen_ = {};
};

}  // namespace posenc::server
