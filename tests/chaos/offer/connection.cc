#include "tests/chaos/offer/connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tests/chaos/offer/frame.h"

namespace posenc::offer {
namespace {

constexpr std::uint32_t kLargestWindow = 0x7fffffff;
// Bytes and pieces of one writev().
constexpr std::size_t kWriteBytes = std::size_t{256} << 10;
constexpr std::size_t kWritePieces = 60;

int OpenSocket(absl::string_view address) {
  if (absl::ConsumePrefix(&address, "unix:")) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    if (address.size() >= sizeof name.sun_path) return -1;
    std::memcpy(name.sun_path, address.data(), address.size());
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&name),
                           sizeof name) != 0) {
      close(fd);
      return -1;
    }
    return fd;
  }
  int port;
  if (!absl::ConsumePrefix(&address, "127.0.0.1:") ||
      !absl::SimpleAtoi(address, &port)) {
    errno = EINVAL;
    return -1;
  }
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<std::uint16_t>(port));
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (fd >= 0 &&
      connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

// The number after "grpc-status" and its length byte, or -1.
int StatusIn(absl::string_view headers) {
  constexpr absl::string_view kName = "grpc-status";
  const std::size_t at = headers.find(kName);
  if (at == absl::string_view::npos) return -1;
  const std::size_t length_at = at + kName.size();
  if (length_at >= headers.size()) return -1;
  const auto length = static_cast<unsigned char>(headers[length_at]);
  int status;
  if (!absl::SimpleAtoi(headers.substr(length_at + 1, length), &status)) {
    return -1;
  }
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connection>> Connection::Connect(
    const std::string& address, const Request* request, OnEnd on_end) {
  const int fd = OpenSocket(address);
  if (fd < 0) {
    return absl::UnavailableError(absl::StrCat(
        "--server: no connection to ", address, ": ", std::strerror(errno),
        "; must be unix:/path or "
        "127.0.0.1:port of a server"));
  }
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  return std::unique_ptr<Connection>(
      new Connection(fd, request, std::move(on_end)));
}

Connection::Connection(int fd, const Request* request, OnEnd on_end)
    : fd_(fd), request_(request), on_end_(std::move(on_end)) {
  // Without a dynamic table the server spells out every header that it sends.
  const std::string settings = SettingBytes(kHeaderTableSize, 0) +
                               SettingBytes(kEnablePush, 0) +
                               SettingBytes(kInitialWindow, kLargestWindow) +
                               SettingBytes(kMaxFrameSize, 1 << 20);
  out_ = absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                      FrameHeader(settings.size(), kSettings, 0, 0), settings,
                      FrameHeader(4, kWindowUpdate, 0, 0),
                      U32(kLargestWindow - 65535));
  Write();
}

Connection::~Connection() {
  if (fd_ >= 0) close(fd_);
}

Connection::Stream* Connection::Find(std::uint32_t id) {
  const std::size_t index = id / 2;
  if (id % 2 == 0 || index >= streams_.size()) return nullptr;
  return streams_[index].open ? &streams_[index] : nullptr;
}

void Connection::Queue(std::uint32_t id, Stream* stream) {
  if (stream->queued || stream->window <= 0 ||
      stream->sent == request_->message.size()) {
    return;
  }
  stream->queued = true;
  ready_.push_back(id);
}

std::string Connection::HeaderBlock(std::int64_t timeout_micros) {
  std::vector<std::pair<std::string, std::string>> headers = {
      {":method", "POST"},       {":scheme", "http"},
      {":path", request_->path}, {":authority", "posenc"},
      {"te", "trailers"},        {"content-type", "application/grpc"}};
  if (request_->announce) {
    headers.emplace_back("posenc-message-bytes",
                         absl::StrCat(request_->message.size() - 5));
  }
  headers.insert(headers.end(), request_->headers.begin(),
                 request_->headers.end());
  std::string block;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    // The newest entry of the dynamic table is number 62.
    block += table_filled_
                 ? std::string(
                       1, static_cast<char>(0x80 | (61 + headers.size() - i)))
                 : HpackIndexing(headers[i].first, headers[i].second);
  }
  table_filled_ = true;
  return block +
         HpackLiteral("grpc-timeout", absl::StrCat(timeout_micros, "u"));
}

std::uint32_t Connection::Start(std::size_t call, std::int64_t timeout_micros) {
  const auto id = static_cast<std::uint32_t>(streams_.size() * 2 + 1);
  Stream& stream = streams_.emplace_back();
  stream.call = call;
  stream.window = initial_window_;
  stream.open = true;
  ++open_;
  const std::string block = HeaderBlock(std::max<std::int64_t>(
      1, std::min<std::int64_t>(timeout_micros, 99'999'999)));
  absl::StrAppend(&out_, FrameHeader(block.size(), kHeaders, kEndHeaders, id),
                  block);
  Queue(id, &stream);
  return id;
}

void Connection::Cancel(std::uint32_t stream) {
  Stream* const found = Find(stream);
  if (found == nullptr) return;
  found->open = false;
  --open_;
  constexpr std::uint32_t kCancel = 8;
  absl::StrAppend(&out_, FrameHeader(4, kReset, 0, stream), U32(kCancel));
}

void Connection::End(std::uint32_t id, int status) {
  Stream* const stream = Find(id);
  if (stream == nullptr) return;
  const std::size_t call = stream->call;
  if (stream->sent < request_->message.size()) {
    Cancel(id);  // the server needs no more of the request
  } else {
    stream->open = false;
    --open_;
  }
  on_end_(call, status);
}

void Connection::Close() {
  if (fd_ < 0) return;
  close(fd_);
  fd_ = -1;
  for (Stream& stream : streams_) {
    if (!stream.open) continue;
    stream.open = false;
    on_end_(stream.call, kConnectionLost);
  }
  open_ = 0;
}

bool Connection::NextData(std::string* header, absl::string_view* part) {
  while (window_ > 0 && !ready_.empty()) {
    const std::uint32_t id = ready_.front();
    ready_.pop_front();
    Stream& stream = streams_[id / 2];
    stream.queued = false;
    if (!stream.open) continue;
    const std::size_t left = request_->message.size() - stream.sent;
    const std::int64_t bytes = std::min(
        {static_cast<std::int64_t>(left), stream.window, window_, max_frame_});
    if (bytes <= 0) continue;
    const auto size = static_cast<std::size_t>(bytes);
    *part = absl::string_view(request_->message).substr(stream.sent, size);
    *header = FrameHeader(size, kData, size == left ? kEndStream : 0, id);
    stream.sent += size;
    stream.window -= bytes;
    window_ -= bytes;
    // At the end of the line: streams take turns, as gRPC's clients have it.
    Queue(id, &stream);
    return true;
  }
  return false;
}

void Connection::Write() {
  while (fd_ >= 0) {
    std::vector<iovec> pieces;
    std::deque<std::string> headers;  // never moves what pieces point to
    std::size_t total = out_.size();
    if (total > 0) pieces.push_back({out_.data(), out_.size()});
    while (total < kWriteBytes && pieces.size() < kWritePieces) {
      absl::string_view part;
      std::string header;
      if (!NextData(&header, &part)) break;
      headers.push_back(std::move(header));
      pieces.push_back({headers.back().data(), headers.back().size()});
      pieces.push_back({const_cast<char*>(part.data()), part.size()});
      total += kFrameHeaderBytes + part.size();
    }
    if (total == 0) return;
    const ssize_t written =
        writev(fd_, pieces.data(), static_cast<int>(pieces.size()));
    if (written < 0 && errno != EAGAIN) return Close();
    std::size_t done = written < 0 ? 0 : static_cast<std::size_t>(written);
    bytes_out_ += static_cast<std::int64_t>(done);
    std::string rest;
    for (const iovec& piece : pieces) {
      const std::size_t skipped = std::min(done, piece.iov_len);
      rest.append(static_cast<const char*>(piece.iov_base) + skipped,
                  piece.iov_len - skipped);
      done -= skipped;
    }
    out_.swap(rest);
    if (!out_.empty()) return;
  }
}

void Connection::OnSettings(absl::string_view payload) {
  if (flags_ & kAck) return;
  for (std::size_t i = 0; i + 6 <= payload.size(); i += 6) {
    const int setting = static_cast<unsigned char>(payload[i]) << 8 |
                        static_cast<unsigned char>(payload[i + 1]);
    const std::int64_t value = ReadU32(payload, i + 2);
    if (setting == kMaxConcurrentStreams) max_streams_ = value;
    if (setting == kMaxFrameSize) {
      max_frame_ = std::min<std::int64_t>(value, 65536);
    }
    if (setting != kInitialWindow) continue;
    for (std::size_t j = 0; j < streams_.size(); ++j) {
      if (!streams_[j].open) continue;
      streams_[j].window += value - initial_window_;
      Queue(static_cast<std::uint32_t>(j * 2 + 1), &streams_[j]);
    }
    initial_window_ = value;
  }
  out_ += FrameHeader(0, kSettings, kAck, 0);
}

void Connection::OnHeaders(absl::string_view payload) {
  if (Stream* const stream = Find(stream_)) {
    const int status = StatusIn(payload);
    if (status >= 0) stream->status = status;
    if (flags_ & kEndStream) End(stream_, stream->status);
  }
}

void Connection::OnFrame(absl::string_view payload) {
  switch (type_) {
    case kData:
      if (flags_ & kEndStream) End(stream_, kNoStatus);
      break;
    case kSettings:
      OnSettings(payload);
      break;
    case kPing:
      if (!(flags_ & kAck) && payload.size() == 8) {
        absl::StrAppend(&out_, FrameHeader(8, kPing, kAck, 0), payload);
      }
      break;
    case kWindowUpdate:
      if (payload.size() == 4) {
        const std::int64_t more = ReadU32(payload, 0) & 0x7fffffff;
        if (stream_ == 0) {
          window_ += more;
        } else if (Stream* const stream = Find(stream_)) {
          stream->window += more;
          Queue(stream_, stream);
        }
      }
      break;
    case kReset:
      if (Stream* const stream = Find(stream_)) {
        // After the trailers of a refusal; then the status is known.
        End(stream_, stream->status != kNoStatus || payload.size() != 4
                         ? stream->status
                         : kResetBase + static_cast<int>(ReadU32(payload, 0)));
      }
      break;
    case kHeaders:
    case kContinuation:
      OnHeaders(payload);
      break;
    default:
      break;
  }
}

void Connection::OnBytes(absl::string_view bytes) {
  while (!bytes.empty() && fd_ >= 0) {
    if (head_.size() < kFrameHeaderBytes) {
      const std::size_t part =
          std::min(kFrameHeaderBytes - head_.size(), bytes.size());
      head_.append(bytes.data(), part);
      bytes.remove_prefix(part);
      if (head_.size() < kFrameHeaderBytes) return;
      left_ = ReadU32(head_, 0) >> 8;
      type_ = static_cast<unsigned char>(head_[3]);
      flags_ = static_cast<unsigned char>(head_[4]);
      stream_ = ReadU32(head_, 5) & 0x7fffffff;
      if (type_ == kData) consumed_ += static_cast<std::int64_t>(left_);
    }
    const std::size_t part = std::min(left_, bytes.size());
    if (type_ != kData) payload_.append(bytes.data(), part);
    bytes.remove_prefix(part);
    left_ -= part;
    if (left_ > 0) return;
    head_.clear();
    const std::string payload = std::move(payload_);
    payload_.clear();
    OnFrame(payload);
  }
}

void Connection::Read() {
  static thread_local std::vector<char> buffer(std::size_t{1} << 20);
  // A few rounds: one busy connection must not keep the others waiting.
  for (int round = 0; round < 4 && fd_ >= 0; ++round) {
    const ssize_t n = recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) return Close();
    bytes_in_ += n;
    OnBytes(absl::string_view(buffer.data(), static_cast<std::size_t>(n)));
    if (static_cast<std::size_t>(n) < buffer.size()) break;
  }
  // The connection's window is 2 GiB, and given back long before it is used up.
  if (consumed_ > 1 << 28) {
    absl::StrAppend(&out_, FrameHeader(4, kWindowUpdate, 0, 0),
                    U32(static_cast<std::uint32_t>(consumed_)));
    consumed_ = 0;
  }
}

}  // namespace posenc::offer
