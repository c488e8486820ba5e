#include "posenc/wire/split.h"

#include <algorithm>
#include <cstdint>

#include "posenc/wire/varint.h"

namespace posenc::wire {
namespace {

constexpr int kTensorData = 15;  // posenc.v1.Tensor.data

// The low three bits of a tag.
enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

constexpr std::size_t kMaxVarintBytes = 10;  // for 64 bits
constexpr std::size_t kMaxLengthBytes = 5;   // for 31 bits: below 2 GiB

// Reads forward through slices. It checks nothing, so a caller must not read
// more than left() bytes.
class Cursor {
 public:
  explicit Cursor(absl::Span<const absl::Span<const char>> slices)
      : slices_(slices) {
    for (const auto& slice : slices) left_ += slice.size();
    NextSlice();
  }

  std::size_t left() const { return left_; }

  std::uint8_t Byte() {
    const auto byte = static_cast<std::uint8_t>(*at_);
    Advance(1);
    return byte;
  }
  void Append(std::size_t bytes, std::string* to) {
    Walk(bytes, [to](absl::Span<const char> piece) {
      to->append(piece.data(), piece.size());
    });
  }
  void Skip(std::size_t bytes) {
    Walk(bytes, [](absl::Span<const char>) {});
  }
  void Borrow(std::size_t bytes, BorrowedBytes* to) {
    to->size = bytes;
    Walk(bytes,
         [to](absl::Span<const char> piece) { to->pieces.push_back(piece); });
  }

 private:
  // Passes the next bytes to `use`, piece by piece.
  template <typename Use>
  void Walk(std::size_t bytes, Use use) {
    while (bytes > 0) {
      const absl::Span<const char> piece(
          at_, std::min(bytes, static_cast<std::size_t>(end_ - at_)));
      use(piece);
      bytes -= piece.size();
      Advance(piece.size());
    }
  }
  void Advance(std::size_t bytes) {
    at_ += bytes;
    left_ -= bytes;
    if (at_ == end_) NextSlice();
  }
  // Skips empty slices.
  void NextSlice() {
    while (at_ == end_ && next_ < slices_.size()) {
      at_ = slices_[next_].data();
      end_ = at_ + slices_[next_].size();
      ++next_;
    }
  }

  const absl::Span<const absl::Span<const char>> slices_;
  std::size_t next_ = 0;       // the slice after this one
  const char* at_ = nullptr;   // the next byte, unless left_ is 0
  const char* end_ = nullptr;  // the end of this slice
  std::size_t left_ = 0;
};

// Reads a length. Returns true if its varint is as short as possible, and the
// varint and the bytes that it counts fit into `limit` bytes. The caller may
// then read these bytes without further checks.
bool ReadLength(Cursor* cursor, std::size_t limit, std::size_t* length) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < kMaxLengthBytes && i < limit; ++i) {
    const std::uint8_t byte = cursor->Byte();
    value |= std::uint64_t{byte & 0x7fu} << (7 * i);
    if (byte < 0x80) {
      *length = value;
      return (byte != 0 || i == 0) && value <= limit - i - 1;
    }
  }
  return false;
}

// Copies a record whose `tag` has been read. Returns false if the record is
// longer than `limit` or has a wire type that no writer uses, or if `to` would
// become longer than `most`.
bool CopyRecord(Cursor* cursor, std::uint8_t tag, std::size_t limit,
                std::size_t most, std::string* to) {
  if (to->size() >= most) return false;
  to->push_back(static_cast<char>(tag));
  switch (tag & 7) {
    case kVarint:
      for (std::size_t i = 0; i < kMaxVarintBytes && i < limit; ++i) {
        const std::uint8_t byte = cursor->Byte();
        to->push_back(static_cast<char>(byte));
        if (byte < 0x80) return true;
      }
      return false;
    case kFixed64:
    case kFixed32: {
      const std::size_t bytes = (tag & 7) == kFixed64 ? 8 : 4;
      if (limit < bytes) return false;
      cursor->Append(bytes, to);
      return true;
    }
    case kLengthDelimited: {
      std::size_t length = 0;
      if (!ReadLength(cursor, limit, &length)) return false;
      if (length > most - to->size()) return false;
      AppendVarint(length, to);
      cursor->Append(length, to);
      return true;
    }
    default:
      return false;
  }
}

// Reads a tag of one byte. Every field of the contract's bulk messages has such
// a tag.
bool ReadTag(Cursor* cursor, std::uint8_t* tag) {
  *tag = cursor->Byte();
  return *tag < 0x80 && *tag >> 3 != 0;
}

// Splits the next `bytes` bytes, which are one tensor: appends its small fields
// to `rest`, and borrows its data.
bool SplitTensor(Cursor* cursor, std::size_t bytes, std::size_t most_rest,
                 std::string* rest, BorrowedBytes* data) {
  const std::size_t end = cursor->left() - bytes;
  while (cursor->left() > end) {
    std::uint8_t tag = 0;
    if (!ReadTag(cursor, &tag)) return false;
    if (tag != (kTensorData << 3 | kLengthDelimited)) {
      if (!CopyRecord(cursor, tag, cursor->left() - end, most_rest, rest)) {
        return false;
      }
      continue;
    }
    std::size_t length = 0;
    if (!ReadLength(cursor, cursor->left() - end, &length)) return false;
    *data = BorrowedBytes();  // if there are several, the last one counts
    cursor->Borrow(length, data);
  }
  return true;
}

}  // namespace

bool SplitTensors(absl::Span<const absl::Span<const char>> slices,
                  absl::Span<const int> tensor_fields, SplitMessage* out,
                  std::size_t most_rest) {
  out->rest.clear();
  out->tensors.assign(tensor_fields.size(), {});
  Cursor cursor(slices);
  if (tensor_fields.size() == 1 && tensor_fields[0] == kOwnData) {
    return SplitTensor(&cursor, cursor.left(), most_rest, &out->rest,
                       &out->tensors[0]);
  }
  std::string tensor;
  while (cursor.left() > 0) {
    std::uint8_t tag = 0;
    if (!ReadTag(&cursor, &tag)) return false;
    const auto field =
        std::find(tensor_fields.begin(), tensor_fields.end(), tag >> 3);
    if (field == tensor_fields.end() || (tag & 7) != kLengthDelimited) {
      if (!CopyRecord(&cursor, tag, cursor.left(), most_rest, &out->rest)) {
        return false;
      }
      continue;
    }
    std::size_t length = 0;
    if (!ReadLength(&cursor, cursor.left(), &length)) return false;
    // The tensor is shorter without its data, so its length is written again.
    tensor.clear();
    if (!SplitTensor(&cursor, length, most_rest, &tensor,
                     &out->tensors[field - tensor_fields.begin()])) {
      return false;
    }
    out->rest.push_back(static_cast<char>(tag));
    AppendVarint(tensor.size(), &out->rest);
    out->rest.append(tensor);
    if (out->rest.size() > most_rest) return false;
  }
  return true;
}

bool SplitValues(absl::Span<const absl::Span<const char>> slices, int field,
                 std::size_t most, SplitEnvelope* out) {
  *out = SplitEnvelope();
  Cursor cursor(slices);
  while (cursor.left() > 0) {
    std::uint8_t tag = 0;
    if (!ReadTag(&cursor, &tag)) return false;
    ++out->records[tag >> 3];
    if (tag != (field << 3 | kLengthDelimited)) {
      if (!CopyRecord(&cursor, tag, cursor.left(),
                      std::numeric_limits<std::size_t>::max(), &out->rest)) {
        return false;
      }
      continue;
    }
    std::size_t length = 0;
    if (!ReadLength(&cursor, cursor.left(), &length)) return false;
    if (out->values.size() == most) {
      cursor.Skip(length);
    } else {
      cursor.Borrow(length, &out->values.emplace_back());
    }
  }
  return true;
}

}  // namespace posenc::wire
