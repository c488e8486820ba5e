// hop.mjs TARGET IN OUT SHIFT repositions the keys in a file, bfloat16 [1, 16, 2, 64], by SHIFT.
import fs from "node:fs";
import posenc from "../index.mjs";

const [target, from, to, shift] = process.argv.slice(2);
const k = posenc.tensor(fs.readFileSync(from), [1, 16, 2, 64], "bfloat16");
const moved = await posenc
  .connect(target)
  .reposition({ oldRope: { pairing: "half_split" }, k, shift: Number(shift), layout: "bshd" });
fs.writeFileSync(to, moved.data);
