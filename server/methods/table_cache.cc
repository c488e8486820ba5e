#include "server/methods/table_cache.h"

#include <openssl/sha.h>

#include <functional>
#include <optional>
#include <utility>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "grpc/slice.h"

namespace posenc::server {
namespace {

// Lists of positions are requests of megabytes: hashing one takes as long as
// computing its table.
constexpr std::size_t kMaxRequestBytes = 64 << 10;

// What an entry takes beside its response.
constexpr std::int64_t kEntryBytes = 256;

// The bytes of a kept response while a call sends them: they are claimed as
// long as gRPC holds the slice.
struct Loan {
  grpc::Slice response;
  std::shared_ptr<Admission> admission;

  static void End(void* pointer) {
    const std::unique_ptr<Loan> it(static_cast<Loan*>(pointer));
    it->admission->Release(static_cast<std::int64_t>(it->response.size()));
  }
};

}  // namespace

class TableCache::KeptResponse final : public PendingResponse {
 public:
  KeptResponse(grpc::Slice response, std::shared_ptr<Admission> admission)
      : response_(std::move(response)), admission_(std::move(admission)) {
    bytes_to_claim_ = static_cast<std::int64_t>(response_.size());
  }
  absl::Status Allocate(ResponseBuffers* /*buffers*/) override {
    auto loan = std::make_unique<Loan>(Loan{response_, admission_});
    // Of the loan's slice, which stays where it is. gRPC only reads it.
    void* const data = const_cast<std::uint8_t*>(loan->response.begin());
    lent_ = grpc::Slice(grpc_slice_new_with_user_data(
                            data, response_.size(), &Loan::End, loan.release()),
                        grpc::Slice::STEAL_REF);
    bytes_to_claim_ = 0;
    return absl::OkStatus();
  }
  absl::Status Compute(std::int64_t /*tile*/, StopCheck /*stop*/) override {
    return absl::OkStatus();
  }
  void Finish(grpc::ByteBuffer* response) override {
    grpc::ByteBuffer(&lent_, 1).Swap(response);
  }

 private:
  const grpc::Slice response_;
  const std::shared_ptr<Admission> admission_;
  grpc::Slice lent_;
};

class TableCache::KeepingResponse final : public PendingResponse {
 public:
  KeepingResponse(std::unique_ptr<PendingResponse> response, std::string key,
                  TableCache* cache)
      : response_(std::move(response)), key_(std::move(key)), cache_(cache) {
    tiles_ = response_->tiles();
    work_bytes_ = response_->work_bytes();
    bytes_to_claim_ = response_->bytes_to_claim();
  }
  absl::Status Allocate(ResponseBuffers* buffers) override {
    absl::Status status = response_->Allocate(buffers);
    bytes_to_claim_ = response_->bytes_to_claim();
    return status;
  }
  absl::Status Compute(std::int64_t tile, StopCheck stop) override {
    return response_->Compute(tile, stop);
  }
  void Finish(grpc::ByteBuffer* response) override {
    response_->Finish(response);
    cache_->Insert(key_, *response);
  }

 private:
  const std::unique_ptr<PendingResponse> response_;
  const std::string key_;
  TableCache* const cache_;
};

TableCache::TableCache(std::int64_t max_bytes,
                       std::shared_ptr<Admission> admission)
    : max_bytes_(max_bytes), admission_(std::move(admission)) {}

std::string TableCache::KeyOf(
    const google::protobuf::MessageLite& request) const {
  if (max_bytes_ == 0 || request.ByteSizeLong() > kMaxRequestBytes) return "";
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    // Maps in the order of their keys.
    coded.SetSerializationDeterministic(true);
    request.SerializeToCodedStream(&coded);
  }
  std::string key(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(key.data()));
  return key;
}

std::unique_ptr<PendingResponse> TableCache::Find(const std::string& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = by_key_.find(key);
  ++(found == by_key_.end() ? state_.misses : state_.hits);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return std::make_unique<KeptResponse>(found->second->response, admission_);
}

std::unique_ptr<PendingResponse> TableCache::Keeping(
    std::unique_ptr<PendingResponse> response, std::string key) {
  // Bytes that are not claimed are few: responses in one slice.
  if (response->bytes_to_claim() == 0 ||
      response->bytes_to_claim() > max_bytes_ - kEntryBytes ||
      !SeenBefore(key)) {
    return response;
  }
  return std::make_unique<KeepingResponse>(std::move(response), std::move(key),
                                           this);
}

bool TableCache::SeenBefore(const std::string& key) {
  const std::size_t hash = std::hash<std::string>()(key);
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(seen_[hash % seen_.size()], hash) == hash;
}

void TableCache::Insert(const std::string& key,
                        const grpc::ByteBuffer& response) {
  // A copy: the response's own memory is claimed, and goes back to others.
  grpc::Slice copy;
  if (!response.DumpToSingleSlice(&copy).ok()) return;
  const auto bytes = static_cast<std::int64_t>(copy.size()) + kEntryBytes;
  if (bytes > max_bytes_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (by_key_.count(key) > 0) return;
  state_.bytes += bytes;
  while (state_.bytes > max_bytes_) {
    const Entry& last = entries_.back();
    state_.bytes -=
        static_cast<std::int64_t>(last.response.size()) + kEntryBytes;
    by_key_.erase(last.key);
    entries_.pop_back();
  }
  entries_.push_front({key, std::move(copy)});
  by_key_[key] = entries_.begin();
}

TableCache::State TableCache::state() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_;
}

}  // namespace posenc::server
