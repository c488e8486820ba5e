// conformance.mjs TARGET DIR replays the vectors DIR/*.json through the client's
// methods. It prints family, name, ok or fail, and why. proto/testdata/README.md
// explains the error bounds.
import fs from "node:fs";
import path from "node:path";
import posenc from "../index.mjs";
import { differs, doublesOf, nearestBits } from "./numbers.mjs";

const [target, folder] = process.argv.slice(2);
const client = posenc.connect(target);

const arrays = {
  DTYPE_FLOAT32: Float32Array,
  DTYPE_FLOAT64: Float64Array,
  DTYPE_FLOAT16: Uint16Array,
  DTYPE_BFLOAT16: Uint16Array,
  DTYPE_FLOAT8_E4M3FN: Uint8Array,
  DTYPE_FLOAT8_E5M2: Uint8Array,
  DTYPE_INT8: Int8Array,
};

// A tensor that a typed array can hold is sent as a typed array. Malformed tensors and tensors of
// integers are sent in the form of the vector.
function native(tensor) {
  const Kind = arrays[tensor?.dtype];
  const numbers = tensor?.values;
  if (!Kind || !Array.isArray(numbers) || tensor.data !== undefined || Object.keys(tensor).length !== 3) return tensor;
  if (
    !Array.isArray(tensor.shape) ||
    tensor.shape.reduce((product, extent) => product * Number(extent), 1) !== numbers.length
  )
    return tensor;
  const dtype = tensor.dtype.slice("DTYPE_".length).toLowerCase();
  const values = numbers.map(Number);
  const elements =
    Kind === Uint16Array || Kind === Uint8Array
      ? Kind.from(values, (value) => nearestBits(value, dtype))
      : Kind.from(values);
  // Values that are too large for their dtype are sent as `values`, because the server decides about them.
  if (!doublesOf(elements, dtype).every((value, i) => Number.isFinite(value) === Number.isFinite(values[i])))
    return tensor;
  return posenc.tensor(elements, tensor.shape.map(Number), dtype);
}

const bulk = ["q", "k", "x", "weight"];

async function call({ rpc, request }) {
  const given = { ...request };
  for (const name of bulk) if (given[name]) given[name] = native(given[name]);
  switch (rpc) {
    case "ApplyRope":
      return client.applyRope(given);
    case "Reposition":
      return { k: await client.reposition(given) };
    case "AddEncoding":
      return { x: await client.addEncoding(given) };
    case "ScoreRelative":
      return { scores: await client.scoreRelative(given) };
    case "ConvertPairing":
      return { weight: await client.convertPairing(given) };
    case "BuildBias":
      return { tile: await client.buildBias(given) };
    default:
      return client[rpc[0].toLowerCase() + rpc.slice(1)](given);
  }
}

function check(answer, { path: where, dtype, shape, values, bound }) {
  const value = where.split(".").reduce((object, name) => object?.[name], answer);
  let actual;
  if (dtype !== undefined) {
    if (!(value instanceof posenc.Tensor)) return `${where}: is no tensor`;
    if (`DTYPE_${value.dtype.toUpperCase()}` !== dtype) return `${where}: is ${value.dtype}; ${dtype} expected`;
    if (String(value.shape) !== String(shape)) return `${where}: shape is ${value.shape}; ${shape} expected`;
    actual = value.data instanceof Float64Array ? [...value.data] : doublesOf(value.data, value.dtype);
  } else {
    actual = shape.length > 0 ? (value ?? []) : [value];
  }
  if (actual.length !== values.length) return `${where}: has ${actual.length} elements; ${values.length} expected`;
  const elementType = dtype?.slice("DTYPE_".length).toLowerCase() ?? "float64";
  for (let i = 0; i < values.length; ++i) {
    const why = differs(actual[i], values[i], bound, elementType, i);
    if (why) return `${where}[${i}]: ${why}`;
  }
  return "";
}

async function replay(test) {
  const { expect } = test;
  let answer;
  try {
    answer = await call(test);
  } catch (error) {
    if (!(error instanceof posenc.PosencError)) throw error;
    if (Array.isArray(expect)) return `${error.code}: ${error.message}`;
    const actual = [error.code, `ERROR_REASON_${error.reason}`, error.field];
    const wanted = [expect.code, expect.reason ?? actual[1], expect.field ?? actual[2]];
    return String(actual) === String(wanted) ? "" : `is ${actual.join(" ")}; ${wanted.join(" ")} expected`;
  }
  if (!Array.isArray(expect)) return `succeeded; ${expect.code} expected`;
  return expect.map((each) => check(answer, each)).find((why) => why) ?? "";
}

let failed = 0;
for (const file of fs
  .readdirSync(folder)
  .filter((name) => name.endsWith(".json"))
  .sort()) {
  for (const test of JSON.parse(fs.readFileSync(path.join(folder, file), "utf8"))) {
    const why = await replay(test).catch((error) => error.stack ?? String(error));
    if (why) ++failed;
    console.log([path.basename(file, ".json"), test.name, why ? "fail" : "ok", why.replace(/\s+/g, " ")].join("\t"));
  }
}
process.exitCode = failed > 0 ? 1 : 0;
