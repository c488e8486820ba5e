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
// Limits for one writev(): bytes, and frames of DATA.
constexpr std::size_t kWriteBytes = std::size_t{256} << 10;
constexpr std::size_t kWriteFrames = 30;
// Messages up to this size are copied behind their headers.
constexpr std::size_t kSmallMessage = 1 << 10;
// Bytes of one recv(): few enough to stay in the processor's cache until they
// are dropped.
constexpr std::size_t kReadBytes = std::size_t{128} << 10;
// The longest frame that must come whole: trailers, settings.
constexpr std::size_t kWholeFrame = std::size_t{64} << 10;

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
  // Without a dynamic table the server sends every header as a literal.
  const std::string settings = SettingBytes(kHeaderTableSize, 0) +
                               SettingBytes(kEnablePush, 0) +
                               SettingBytes(kInitialWindow, kLargestWindow) +
                               SettingBytes(kMaxFrameSize, (1 << 24) - 1);
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
  const std::string timeout = absl::StrCat(timeout_micros, "u");
  if (!indexed_headers_.empty()) {
    return indexed_headers_ + HpackLiteral(kNewestEntry, timeout);
  }
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
    block += HpackIndexing(headers[i].first, headers[i].second);
    indexed_headers_ +=
        static_cast<char>(0x80 | (kNewestEntry + headers.size() - i));
  }
  return block + HpackIndexing("grpc-timeout", timeout);
}

bool Connection::SendsAtOnce() const {
  const auto size = static_cast<std::int64_t>(request_->message.size());
  return request_->message.size() <= kSmallMessage && ready_.empty() &&
         size <= window_ && size <= initial_window_ && size <= max_frame_;
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
  char header[kFrameHeaderBytes];
  WriteFrameHeader(block.size(), kHeaders, kEndHeaders, id, header);
  out_.append(header, sizeof header).append(block);
  if (!SendsAtOnce()) {
    Queue(id, &stream);
    return id;
  }
  const std::string& message = request_->message;
  WriteFrameHeader(message.size(), kData, kEndStream, id, header);
  out_.append(header, sizeof header).append(message);
  stream.sent = message.size();
  window_ -= static_cast<std::int64_t>(message.size());
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

bool Connection::NextData(char* header, absl::string_view* part) {
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
    WriteFrameHeader(size, kData, size == left ? kEndStream : 0, id, header);
    stream.sent += size;
    stream.window -= bytes;
    window_ -= bytes;
    // The stream goes to the end of the queue: streams alternate, as in gRPC's
    // clients.
    Queue(id, &stream);
    return true;
  }
  return false;
}

void Connection::Write() {
  char headers[kWriteFrames][kFrameHeaderBytes];
  iovec pieces[1 + 2 * kWriteFrames];
  while (fd_ >= 0 && !blocked_) {
    int count = 0;
    std::size_t total = out_.size();
    if (total > 0) pieces[count++] = {out_.data(), out_.size()};
    for (char(&header)[kFrameHeaderBytes] : headers) {
      absl::string_view part;
      if (total >= kWriteBytes || !NextData(header, &part)) break;
      pieces[count++] = {header, sizeof header};
      pieces[count++] = {const_cast<char*>(part.data()), part.size()};
      total += sizeof header + part.size();
    }
    if (total == 0) return;
    const ssize_t written = writev(fd_, pieces, count);
    if (written < 0 && errno != EAGAIN) return Close();
    std::size_t done = written < 0 ? 0 : static_cast<std::size_t>(written);
    bytes_out_ += static_cast<std::int64_t>(done);
    blocked_ = done < total;
    std::string rest;
    for (int i = 0; blocked_ && i < count; ++i) {
      const std::size_t skipped = std::min(done, pieces[i].iov_len);
      rest.append(static_cast<const char*>(pieces[i].iov_base) + skipped,
                  pieces[i].iov_len - skipped);
      done -= skipped;
    }
    if (blocked_) {
      out_.swap(rest);
    } else {
      out_.clear();
    }
  }
}

void Connection::OnSettings(const Frame& frame, absl::string_view payload) {
  if (frame.flags & kAck) return;
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

void Connection::OnFrame(const Frame& frame, absl::string_view payload) {
  switch (frame.type) {
    case kSettings:
      OnSettings(frame, payload);
      break;
    case kPing:
      if (!(frame.flags & kAck) && payload.size() == 8) {
        absl::StrAppend(&out_, FrameHeader(8, kPing, kAck, 0), payload);
      }
      break;
    case kWindowUpdate:
      if (payload.size() == 4) {
        const std::int64_t more = ReadU32(payload, 0) & 0x7fffffff;
        if (frame.stream == 0) {
          window_ += more;
        } else if (Stream* const stream = Find(frame.stream)) {
          stream->window += more;
          Queue(frame.stream, stream);
        }
      }
      break;
    case kReset:
      if (Stream* const stream = Find(frame.stream)) {
        // If the reset comes after the trailers of a refusal, the call has the
        // status of the trailers, else the reset's code.
        End(frame.stream,
            stream->status != kNoStatus || payload.size() != 4
                ? stream->status
                : kResetBase + static_cast<int>(ReadU32(payload, 0)));
      }
      break;
    case kHeaders:
    case kContinuation:
      if (Stream* const stream = Find(frame.stream)) {
        const int status = StatusIn(payload);
        if (status >= 0) stream->status = status;
        if (frame.flags & kEndStream) End(frame.stream, stream->status);
      }
      break;
    default:
      break;
  }
}

std::size_t Connection::OnBytes(absl::string_view bytes) {
  const std::size_t all = bytes.size();
  while (fd_ >= 0) {
    if (left_ > 0) {
      const std::size_t part = std::min(left_, bytes.size());
      bytes.remove_prefix(part);
      left_ -= part;
      if (left_ > 0) break;
      if (data_.flags & kEndStream) End(data_.stream, kNoStatus);
    }
    if (bytes.size() < kFrameHeaderBytes) break;
    const std::size_t size = ReadU32(bytes, 0) >> 8;
    const Frame frame = {static_cast<unsigned char>(bytes[3]),
                         static_cast<unsigned char>(bytes[4]),
                         ReadU32(bytes, 5) & 0x7fffffff};
    if (frame.type == kData) {
      bytes.remove_prefix(kFrameHeaderBytes);
      consumed_ += static_cast<std::int64_t>(size);
      data_ = frame;
      left_ = size;
      if (size == 0 && (frame.flags & kEndStream)) End(frame.stream, kNoStatus);
      continue;
    }
    if (size > kWholeFrame) {
      Close();
      break;
    }
    if (bytes.size() < kFrameHeaderBytes + size) break;
    OnFrame(frame, bytes.substr(kFrameHeaderBytes, size));
    bytes.remove_prefix(kFrameHeaderBytes + size);
  }
  return all - bytes.size();
}

bool Connection::Read() {
  static thread_local std::vector<char> buffer(kWholeFrame + kFrameHeaderBytes +
                                               kReadBytes);
  bool more = true;
  // Reads at most four times, so that one busy connection does not delay other
  // connections.
  for (int round = 0; round < 4 && more && fd_ >= 0; ++round) {
    std::memcpy(buffer.data(), part_.data(), part_.size());
    const ssize_t n =
        recv(fd_, buffer.data() + part_.size(), kReadBytes, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return false;
    if (n <= 0) {
      Close();
      return false;
    }
    bytes_in_ += n;
    const absl::string_view bytes(buffer.data(),
                                  part_.size() + static_cast<std::size_t>(n));
    const absl::string_view rest = bytes.substr(OnBytes(bytes));
    part_.assign(rest.data(), rest.size());
    more = static_cast<std::size_t>(n) == kReadBytes;
  }
  // The connection's window is 2 GiB, and is renewed long before it is used up.
  if (consumed_ > 1 << 28) {
    absl::StrAppend(&out_, FrameHeader(4, kWindowUpdate, 0, 0),
                    U32(static_cast<std::uint32_t>(consumed_)));
    consumed_ = 0;
  }
  return more && fd_ >= 0;
}

}  // namespace posenc::offer
