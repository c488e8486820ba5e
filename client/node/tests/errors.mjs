// errors.mjs TABLE ENVFILE replays the table of error cases that all clients share.
// It prints family, name, ok or fail, and why.
import fs from "node:fs";
import posenc from "../index.mjs";

const [table, envFile] = process.argv.slice(2);
const env = Object.fromEntries(
  fs
    .readFileSync(envFile, "utf8")
    .split("\n")
    .filter((line) => /^\w+=/.test(line))
    .map((line) => [
      line.slice(0, line.indexOf("=")),
      line.slice(line.indexOf("=") + 1).replace(/^(["'])(.*)\1$/, "$2"),
    ]),
);

const arrays = {
  float32: Float32Array,
  float64: Float64Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  int32: Int32Array,
  int64: BigInt64Array,
};

async function call({ server, options = {}, call: name, arguments: given = {}, ...rest }) {
  const tls = options.tls
    ? { caFile: options.ca === undefined ? undefined : options.ca === "wrong" ? env.WRONG_CA : env.CA }
    : undefined;
  const client = posenc.connect(env[server.toUpperCase()], {
    tls,
    token: options.token === undefined ? undefined : env[`TOKEN_${options.token.toUpperCase()}`],
    timeoutMs: options.timeout === undefined ? undefined : options.timeout * 1000,
  });
  if (name === "info") return client.getServerInfo();
  if (name === "table") return client.buildTable({ rope: given.rope, start: 0, rows: given.rows });
  if (name !== "rotate") throw new TypeError(`${JSON.stringify(name)} is no call`);
  const {
    shape = [1, 4, 2, 8],
    dtype = "float32",
    layout = "bshd",
    rope = { pairing: "half_split" },
    start,
    ids,
    bytes,
    positions,
    out,
  } = { ...rest, ...given };
  const q = given.q === null ? null : posenc.tensor(zeros(shape, dtype, bytes), shape, dtype);
  const at = ids !== undefined ? { ids: ids.map(Number) } : { start: positions === null ? null : (start ?? 0) };
  // The table has names in snake_case; the client takes camelCase.
  const camel =
    rope &&
    Object.fromEntries(
      Object.entries(rope).map(([key, value]) => [key.replace(/_(\w)/g, (_, letter) => letter.toUpperCase()), value]),
    );
  const memory = out && { out: { [out.of ?? "q"]: zeros(out.shape ?? shape, out.dtype ?? dtype) } };
  return client.applyRope({ rope: typeof rope === "string" ? rope : camel, layout, q, ...at, ...memory });
}

function zeros(shape, dtype, bytes) {
  const Kind = arrays[dtype] ?? Uint8Array;
  return new Kind(
    bytes === undefined ? shape.reduce((product, extent) => product * extent, 1) : bytes / Kind.BYTES_PER_ELEMENT,
  );
}

function differs(error, { code, reason, field, text = [] }) {
  if (!(error instanceof posenc.PosencError)) return `is ${error?.stack ?? error}; a PosencError expected`;
  if (!code.split("|").includes(error.code)) return `code is ${error.code}; ${code} expected (${error.message})`;
  if (reason !== undefined && error.reason !== reason)
    return `reason is ${error.reason}; ${reason} expected (${error.message})`;
  if (field !== undefined && error.field !== field)
    return `field is ${error.field}; ${field} expected (${error.message})`;
  const missing = [text].flat().find((each) => !error.message.includes(each));
  return missing === undefined ? "" : `text lacks ${JSON.stringify(missing)}: ${error.message}`;
}

let failed = 0;
for (const test of JSON.parse(fs.readFileSync(table, "utf8"))) {
  if (test.only?.includes("node") === false) continue;
  const why = await call(test).then(
    () => (test.expect.code === "OK" ? "" : `succeeded; ${test.expect.code} expected`),
    (error) => differs(error, test.expect),
  );
  if (why) ++failed;
  console.log(["errors", test.name, why ? "fail" : "ok", why.replace(/\s+/g, " ")].join("\t"));
}
process.exitCode = failed > 0 ? 1 : 0;
