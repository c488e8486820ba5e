// The ES module is this view of the CommonJS one, so that a program that loads
// both has one PosencError and one Tensor.
import posenc from "./dist/index.js";

export default posenc;
export const { connect, fromEnv, tensor, Client, Rope, Tensor, SharedRegion, SharedTensor, PosencError, version } =
  posenc;
