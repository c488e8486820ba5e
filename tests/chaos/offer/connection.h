// One connection of the generator: a raw HTTP/2 client that never blocks and
// spends as little as it can on a call. While the socket is full, it begins no
// call (HasRoom()); bytes that exceed the server's windows wait in this
// program.
//
// It is no general client: it reads the status of a call only if the headers
// are not Huffman-coded, as from gRPC's server, and drops the response's bytes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace posenc::offer {

// The request of all calls.
struct Request {
  std::string path;     // "/posenc.v1.PositionalEncodingService/ApplyRope"
  std::string message;  // includes gRPC's five bytes before it
  bool announce = true;
  // More headers: a token, for example.
  std::vector<std::pair<std::string, std::string>> headers;
};

// Statuses that gRPC has no number for.
inline constexpr int kNoStatus = 99;  // the stream ended without one
inline constexpr int kConnectionLost = 98;
inline constexpr int kResetBase = 100;  // + HTTP/2's error code

// Not thread-safe.
class Connection {
 public:
  // Called once for each call, with gRPC's status or one of the statuses above.
  using OnEnd = std::function<void(std::size_t call, int status)>;

  // `address` is unix:/path or 127.0.0.1:port. The request must outlive the
  // connection.
  static absl::StatusOr<std::unique_ptr<Connection>> Connect(
      const std::string& address, const Request* request, OnEnd on_end);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return fd_; }
  bool alive() const { return fd_ >= 0; }
  // True if the server's SETTINGS_MAX_CONCURRENT_STREAMS and the socket leave
  // room.
  bool HasRoom() const { return alive() && open_ < max_streams_ && !blocked_; }

  // Starts a call; returns its stream. Needs HasRoom().
  std::uint32_t Start(std::size_t call, std::int64_t timeout_micros);
  // Gives up a call: resets the stream, and does not call on_end.
  void Cancel(std::uint32_t stream);

  // Reads the available bytes; true if there may be more.
  bool Read();
  // Sends what can be sent. Once the socket is full, it sends nothing until
  // Unblock().
  void Write();
  void Unblock() { blocked_ = false; }

  std::int64_t bytes_in() const { return bytes_in_; }
  std::int64_t bytes_out() const { return bytes_out_; }

 private:
  struct Stream {
    std::size_t call = 0;
    std::size_t sent = 0;     // bytes of the message
    std::int64_t window = 0;  // bytes that the server accepts
    bool open = false;
    bool queued = false;  // is in ready_
    int status = kNoStatus;
  };

  struct Frame {
    int type = 0, flags = 0;
    std::uint32_t stream = 0;
  };

  Connection(int fd, const Request* request, OnEnd on_end);

  Stream* Find(std::uint32_t id);
  void Queue(std::uint32_t id, Stream* stream);
  void End(std::uint32_t id, int status);
  void Close();
  std::string HeaderBlock(std::int64_t timeout_micros);
  // Whether a message is small and can be sent now, in one frame.
  bool SendsAtOnce() const;
  // Sets the header and the part of the message of the next DATA frame that the
  // windows allow. Returns false if there is none.
  bool NextData(char* header, absl::string_view* part);
  // Consumes whole frames, and parts of DATA frames. Returns the number of
  // consumed bytes.
  std::size_t OnBytes(absl::string_view bytes);
  void OnFrame(const Frame& frame, absl::string_view payload);
  void OnSettings(const Frame& frame, absl::string_view payload);

  int fd_;
  const Request* const request_;
  const OnEnd on_end_;

  std::string out_;  // frames that are not written yet
  bool blocked_ = false;
  std::deque<std::uint32_t> ready_;
  std::vector<Stream> streams_;  // by id / 2
  std::int64_t open_ = 0;
  // The headers that are the same in all calls, as indexes of the dynamic
  // table. Empty before the first call, which adds them to the table.
  std::string indexed_headers_;

  // The server's limits.
  std::int64_t window_ = 65535;
  std::int64_t initial_window_ = 65535;
  std::int64_t max_frame_ = 16384;
  std::int64_t max_streams_ = 1 << 30;

  std::string part_;           // an incomplete frame, except DATA
  Frame data_;                 // the DATA frame that is being read
  std::size_t left_ = 0;       // its remaining bytes
  std::int64_t consumed_ = 0;  // bytes of DATA not yet returned as window

  std::int64_t bytes_in_ = 0, bytes_out_ = 0;
};

}  // namespace posenc::offer
