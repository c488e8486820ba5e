// bench.mjs TARGET CASE: the first call's time, the median of the calls after a
// warm-up, and this process's peak memory, as a line of JSON.
import fs from "node:fs";
import posenc from "../index.mjs";
import { startEcho } from "./echo.mjs";

const [target, name] = process.argv.slice(2);
const cases = {
  unary64: { mib: 64, calls: 5, options: {} },
  unary1: { mib: 1, calls: 5, options: {} },
  // One token, whose peak is the program's own.
  token1: { mib: 1 / 64, calls: 5, options: {} },
  // unary64 without the option that ../run gives Node.
  plain64: { mib: 64, calls: 5, options: {} },
  stream256: { mib: 256, calls: 2, options: { streamAboveBytes: 0 } },
  // What one message of 64 MiB costs, which the client avoids by itself.
  message64: { mib: 64, calls: 5, options: { streamAboveBytes: 512 << 20 } },
  // grpc-js alone.
  echo64: { mib: 64, calls: 5 },
  echo1: { mib: 1, calls: 5 },
};
const { mib, calls, options } = cases[name];

function startRotation() {
  const elements = mib * 2 ** 18;
  const shape = [1, elements / 4096, 32, 128];
  const q = new Float32Array(elements).map((_, i) => (i % 1000) / 1000);
  const out = new Float32Array(elements).fill(1);
  const client = posenc.connect(target, options);
  const call = () =>
    client.applyRope({
      rope: { pairing: "half_split" },
      q: posenc.tensor(q, shape),
      start: 0,
      layout: "bshd",
      out: { q: out },
    });
  return { call, end: () => client.close() };
}

async function startEchoOfBytes() {
  const bytes = Buffer.alloc(mib << 20, 1);
  const { call, end } = await startEcho();
  return { call: () => call(bytes), end };
}

// As in all clients' benchmarks: seconds of calls before those that are measured,
// and at least one over every connection. V8 compiles for longer than the two seconds
// that are enough elsewhere.
const warmUp = 6;
const connections = 4;

const now = () => Number(process.hrtime.bigint()) / 1e9;
const took = [];
const seconds = [];
const { call, end } = name.startsWith("echo") ? await startEchoOfBytes() : startRotation();
for (const begin = now(); seconds.length < calls;) {
  const start = now();
  await call();
  took.push(now() - start);
  if (start - begin >= warmUp && took.length > connections) seconds.push(took.at(-1));
}
end();
seconds.sort((a, b) => a - b);
const peak = Number(/VmHWM:\s*(\d+)/.exec(fs.readFileSync("/proc/self/status", "utf8"))[1]) * 1024;
console.log(
  JSON.stringify({
    client: "node",
    case: name,
    seconds: seconds[calls >> 1],
    first_seconds: took[0],
    peak_bytes: peak,
    tensor_bytes: mib * 2 ** 20,
  }),
);
