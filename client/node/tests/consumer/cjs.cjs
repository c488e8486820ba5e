const assert = require("node:assert");
const posenc = require("posenc");

assert.throws(() => posenc.connect("localhost:50051", { tiemoutMs: 1 }), {
  name: "PosencError",
  reason: "FIELD_UNKNOWN",
});
assert.strictEqual(posenc.tensor(new Float32Array(4)).dtype, "float32");
console.log(`require: posenc ${posenc.version}`);
