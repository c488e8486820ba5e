// bench.mjs TARGET CASE prints a line of JSON with the time of the first call, the
// median time of the calls after a warm-up, and the peak memory of this process.
import fs from "node:fs";
import posenc from "../index.mjs";
import { startEcho } from "./echo.mjs";

const [target, name] = process.argv.slice(2);
const cases = {
  unary64: { mib: 64, calls: 5, options: {} },
  unary1: { mib: 1, calls: 5, options: {} },
  // Rotates one token, so the peak memory is the memory of the program without large tensors.
  token1: { mib: 1 / 64, calls: 5, options: {} },
  // unary64 without the option that ../run passes to Node.
  plain64: { mib: 64, calls: 5, options: {} },
  stream256: { mib: 256, calls: 2, options: { streamAboveBytes: 0 } },
  // 64 MiB in one message; by default the client uses a stream.
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

// As in the benchmarks of all clients, unmeasured calls come first: for `warmUp`
// seconds, and at least `connections` calls. Clients without a just-in-time compiler
// need two seconds, but V8 compiles for longer.
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
