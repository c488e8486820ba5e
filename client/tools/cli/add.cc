// `posenc add`: adds an absolute encoding to the embeddings in a file.

#include <memory>
#include <optional>

#include "client/tools/arguments/connection.h"
#include "client/tools/arguments/enum_flags.h"
#include "client/tools/arguments/transform.h"
#include "client/tools/cli/commands.h"
#include "client/tools/files/status.h"

namespace posenc::cli {
namespace {

// `args` has the arguments that are neither tensors nor messages.
struct AddFlags {
  AddEncodingArgs args;
  FieldFlags encoding{v1::AbsoluteEncoding::descriptor()};
  FieldFlags positions{v1::Positions::descriptor()};
  std::optional<double> x_scale;
  TransformFlags files;
};

absl::Status RunAdd(const AddFlags& flags, const GlobalFlags& globals) {
  AddEncodingArgs args = flags.args;
  if (flags.x_scale.has_value()) args.x_scale = *flags.x_scale;
  RETURN_IF_ERROR(flags.encoding.Read(&args.encoding));
  // The cells of a grid define its positions, so a grid takes no other
  // positions.
  if (!args.encoding.has_sincos_grid() || !flags.positions.Empty()) {
    ASSIGN_OR_RETURN(args.positions, BuildPositions(flags.positions));
  }
  ASSIGN_OR_RETURN(const Connection connection, Connection::Open(globals));
  return Transform(
      flags.files, globals, "encoded", {"x"},
      [&](const SafetensorsEntry& /*entry*/, const TensorView& tensor) {
        args.x = tensor;
        return connection.client().AddEncoding(args);
      });
}

}  // namespace

Command AddAdd(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<AddFlags>();
  AddAbsoluteFlags(app, &flags->encoding);
  AddPositionFlags(app, "", "Positions (none for a grid)", &flags->positions);
  flags->args.combination = v1::COMBINATION_ADD;
  AddEnumFlag(app, "--combination", &flags->args.combination,
              "add, multiply (x * (1 + encoding)) or concatenate");
  AddFlag(app, "--x-scale", &flags->x_scale, "X",
          "Factor on x, applied first; sqrt(dim) in the Transformer");
  AddTransformFlags(app, "x", &flags->files);
  return [flags, globals] { return RunAdd(*flags, *globals); };
}

}  // namespace posenc::cli
