#include "client/cpp/connection/channels.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "grpcpp/create_channel.h"

namespace posenc {

grpc::ChannelArguments ChannelArguments(const ClientOptions& options,
                                        bool own_connection, bool retries) {
  const int max_bytes = static_cast<int>(std::clamp<std::int64_t>(
      options.max_message_bytes, 0, std::numeric_limits<int>::max()));
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(max_bytes);
  args.SetMaxSendMessageSize(max_bytes);
  // Offers and accepts no compression, because tensors do not compress, and a
  // compressed message can make gRPC 1.51 use up all memory.
  args.SetCompressionAlgorithm(GRPC_COMPRESS_NONE);
  args.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET,
              1 << GRPC_COMPRESS_NONE);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, retries ? 1 : 0);
  // A call that has sent more bytes than this is not retried. gRPC's default,
  // 256 KiB, would exclude most tensors. The buffer keeps references, not
  // copies.
  args.SetInt(GRPC_ARG_PER_RPC_RETRY_BUFFER_SIZE, max_bytes);
  // A retry of a call helps only if gRPC has tried to reconnect before the
  // retry. So gRPC first reconnects after 100 ms, which is the first backoff of
  // retries. gRPC's default is 1 s.
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // By default gRPC resolves a name at most every 30 s. That is too rare if all
  // known servers were replaced. Names in Kubernetes may be cached for 5 s.
  args.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 5000);
  // While a stuck peer accepts no bytes, gRPC holds the caller's memory
  // (loans.h). gRPC releases it when TCP gives up, after TCP_USER_TIMEOUT. gRPC
  // sets TCP_USER_TIMEOUT to the keepalive timeout, but only if it also sends
  // HTTP/2 pings. Servers close connections that ping too often; one ping an
  // hour is rare enough.
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 3600 * 1000);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
              static_cast<int>(std::clamp<std::int64_t>(
                  absl::ToInt64Milliseconds(options.stuck_timeout), 1,
                  std::numeric_limits<int>::max())));
  // Without this argument, all channels with equal arguments would share one
  // connection.
  if (own_connection) args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetServiceConfigJSON(options.service_config.value_or(kServiceConfig));
  return args;
}

Channels::Channels(const ClientOptions& options)
    : options_(options),
      security_(ChannelSecurity::Of(options)),
      small_(Create(false, true)),
      bulk_(static_cast<std::size_t>(std::max(options.bulk_channels, 0))) {}

Channels::Channels(std::shared_ptr<grpc::Channel> channel)
    : security_(ChannelSecurity()),
      small_(std::make_shared<Connection>(Connection{std::move(channel)})) {}

Channels::Lease Channels::Create(bool own_connection, bool retries) const {
  const grpc::ChannelArguments arguments =
      ChannelArguments(options_, own_connection, retries);
  // Without valid security the channel has null credentials. No call uses this
  // channel, because Begin() refuses every call.
  return std::make_shared<Connection>(Connection{
      security_.ok()
          ? security_->CreateChannel(options_.target, arguments)
          : grpc::CreateCustomChannel(options_.target, nullptr, arguments)});
}

Channels::Lease Channels::Bulk() {
  if (bulk_.empty()) return small_;
  const std::lock_guard<std::mutex> lock(mutex_);
  // The rank is twice the number of calls under way. A connection that is not
  // made yet has rank 1, between idle and busy connections. A connection that
  // cannot connect comes last.
  const auto rank = [](const Lease& connection) {
    if (connection == nullptr) return 1L;
    if (connection->channel->GetState(false) ==
        GRPC_CHANNEL_TRANSIENT_FAILURE) {
      return std::numeric_limits<long>::max();
    }
    return 2 * (connection.use_count() - 1);
  };
  const auto best = std::min_element(
      bulk_.begin(), bulk_.end(),
      [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  if (*best == nullptr) *best = Create(true, true);
  std::rotate(best, best + 1, bulk_.end());
  return bulk_.back();
}

Channels::Lease Channels::Once() {
  if (options_.target.empty()) return small_;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (once_ == nullptr) once_ = Create(true, false);
  return once_;
}

void Channels::Drop(Lease lease) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::replace(bulk_.begin(), bulk_.end(), lease, Lease());
  if (lease == once_) once_ = nullptr;
}

}  // namespace posenc
