import assert from "node:assert";
import { createRequire } from "node:module";
import posenc, { PosencError, tensor } from "posenc";

const required = createRequire(import.meta.url)("posenc");
assert.strictEqual(PosencError, required.PosencError, "both module systems share one class");
if (process.env.POSENC_SERVER) {
  const q = tensor(new Float32Array(64).fill(1), [1, 4, 2, 8]);
  const { q: turned } = await posenc
    .fromEnv()
    .applyRope({ rope: { pairing: "half_split" }, q, start: 0, layout: "bshd" });
  assert.ok(Math.abs(turned.data[16] - (Math.cos(1) - Math.sin(1))) < 1e-6);
}
console.log(`import: posenc ${posenc.version}`);
