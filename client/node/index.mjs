// The ES module is this view of the CommonJS one, so that a program that loads
// both has one PosencError and one Tensor.
import posenc from "./dist/index.js";

export default posenc;
export const { connect, fromEnv, local, tensor } = posenc;
export const { Client, LocalClient, PosencError, Rope, SharedRegion, SharedTensor, Tensor, version } = posenc;
