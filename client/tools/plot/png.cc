#include "client/tools/plot/png.h"

#include <zlib.h>

#include <cstddef>
#include <new>

#include "client/tools/plot/colors.h"

namespace posenc::plot {
namespace {

void AppendUint32(std::uint32_t value, std::string* out) {
  for (const int shift : {24, 16, 8, 0}) {
    out->push_back(static_cast<char>(value >> shift));
  }
}

// A chunk consists of its length, its type, its data, and the checksum of type
// and data.
void AppendChunk(const std::string& type, const std::string& data,
                 std::string* out) {
  AppendUint32(static_cast<std::uint32_t>(data.size()), out);
  const std::size_t begin = out->size();
  out->append(type);
  out->append(data);
  const auto* const bytes = reinterpret_cast<const Bytef*>(&(*out)[begin]);
  AppendUint32(
      static_cast<std::uint32_t>(crc32_z(0, bytes, out->size() - begin)), out);
}

}  // namespace

std::string CividisPng(int width, int height,
                       absl::Span<const std::uint8_t> levels) {
  std::string header;
  AppendUint32(static_cast<std::uint32_t>(width), &header);
  AppendUint32(static_cast<std::uint32_t>(height), &header);
  header.append("\x08\x03\0\0\0", 5);  // 8 bits, palette, not interlaced

  std::string palette;
  for (const Color color : Cividis()) {
    for (const int shift : {16, 8, 0}) {
      palette.push_back(static_cast<char>(color >> shift));
    }
  }

  // Each row begins with the number of its filter. 0 means no filter.
  std::string rows;
  const auto columns = static_cast<std::size_t>(width);
  for (std::size_t at = 0; at < levels.size(); at += columns) {
    rows.push_back('\0');
    rows.append(reinterpret_cast<const char*>(&levels[at]), columns);
  }
  uLongf size = compressBound(rows.size());
  std::string data(size, '\0');
  // compressBound() is enough for every input, so compress() fails only if
  // memory is exhausted.
  if (compress(reinterpret_cast<Bytef*>(data.data()), &size,
               reinterpret_cast<const Bytef*>(rows.data()),
               rows.size()) != Z_OK) {
    throw std::bad_alloc();
  }
  data.resize(size);

  std::string file = "\x89PNG\r\n\x1a\n";
  AppendChunk("IHDR", header, &file);
  AppendChunk("PLTE", palette, &file);
  AppendChunk("IDAT", data, &file);
  AppendChunk("IEND", "", &file);
  return file;
}

}  // namespace posenc::plot
