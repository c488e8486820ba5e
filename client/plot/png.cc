#include "client/plot/png.h"

#include <png.h>

#include <array>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/plot/colors.h"

namespace posenc::plot {
namespace {

absl::StatusOr<std::string> Write(png_image* image, const void* pixels,
                                  const void* colors) {
  // libpng's bound holds for what is incompressible, too.
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(*image);
  std::string file(size, '\0');
  const int ok = png_image_write_to_memory(image, file.data(), &size, 0, pixels,
                                           0, colors);
  const std::string reason = image->message;
  png_image_free(image);
  if (ok == 0) {
    return absl::InternalError(absl::StrCat("libpng: ", reason));
  }
  file.resize(size);
  return file;
}

png_image Image(int width, int height, png_uint_32 format) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = format;
  return image;
}

}  // namespace

absl::StatusOr<std::string> RgbPng(int width, int height,
                                   absl::Span<const std::uint8_t> pixels) {
  png_image image = Image(width, height, PNG_FORMAT_RGB);
  return Write(&image, pixels.data(), nullptr);
}

absl::StatusOr<std::string> CividisPng(int width, int height,
                                       absl::Span<const std::uint8_t> levels,
                                       bool masked) {
  png_image image = Image(width, height, PNG_FORMAT_RGB_COLORMAP);
  image.colormap_entries = 256;
  std::array<std::uint8_t, std::size_t{3} * 256> colors;
  for (std::size_t i = 0; i < 256; ++i) {
    const Color color = masked && i == 0 ? kMasked : Cividis()[i];
    colors[3 * i] = static_cast<std::uint8_t>(color >> 16);
    colors[3 * i + 1] = static_cast<std::uint8_t>(color >> 8);
    colors[3 * i + 2] = static_cast<std::uint8_t>(color);
  }
  return Write(&image, levels.data(), colors.data());
}

}  // namespace posenc::plot
