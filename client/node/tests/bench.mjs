// bench.mjs TARGET CASE: the first call's time, the median of the calls after a
// warm-up, and this process's peak memory, as a line of JSON.
import fs from "node:fs";
import posenc from "../index.mjs";

const [target, name] = process.argv.slice(2);
const cases = {
  unary64: { tokens: 4096, calls: 5, options: {} },
  unary1: { tokens: 64, calls: 5, options: {} },
  stream256: { tokens: 16384, calls: 2, options: { streamAboveBytes: 0 } },
  // What one message of 64 MiB costs, which the client avoids by itself.
  message64: { tokens: 4096, calls: 5, options: { streamAboveBytes: 512 << 20 } },
};
const { tokens, calls, options } = cases[name];
const shape = [1, tokens, 32, 128];
const elements = tokens * 32 * 128;
const q = new Float32Array(elements).map((_, i) => (i % 1000) / 1000);
const out = new Float32Array(elements).fill(1);
const client = posenc.connect(target, options);

// As in all clients' benchmarks: seconds of calls before those that are measured,
// and at least one over every connection.
const warmUp = 2;
const connections = 4;

const now = () => Number(process.hrtime.bigint()) / 1e9;
const took = [];
const seconds = [];
for (const begin = now(); seconds.length < calls; ) {
  const start = now();
  await client.applyRope({ rope: { pairing: "half_split" }, q: posenc.tensor(q, shape), start: 0, layout: "bshd", out: { q: out } });
  took.push(now() - start);
  if (start - begin >= warmUp && took.length > connections) seconds.push(took.at(-1));
}
seconds.sort((a, b) => a - b);
const peak = Number(/VmHWM:\s*(\d+)/.exec(fs.readFileSync("/proc/self/status", "utf8"))[1]) * 1024;
console.log(JSON.stringify({ client: "node", case: name, seconds: seconds[calls >> 1], first_seconds: took[0], peak_bytes: peak, tensor_bytes: q.byteLength }));
