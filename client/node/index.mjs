// The ES module exports the objects of the CommonJS module. So a program that
// loads both modules has only one class PosencError and one class Tensor.
import posenc from "./dist/index.js";

export default posenc;
export const { connect, fromEnv, local, tensor } = posenc;
export const { Client, LocalClient, PosencError, Rope, SharedRegion, SharedTensor, Tensor, version } = posenc;
