// Converts plain objects to messages and back, by the contract's descriptors.
//
// protobufjs leaves out keys that it does not know. Here they are errors: a
// mistyped `layot` must not become a request without a layout.
import fs from "node:fs";
import path from "node:path";
import protobuf from "protobufjs";
import { invalid, PosencError } from "./errors";
import { bytesOf, type Dtype, elementBytes, received, Tensor, type Wanted } from "./tensor";

const root = protobuf.Root.fromJSON(JSON.parse(fs.readFileSync(path.join(__dirname, "schema.json"), "utf8")));
root.resolveAll();

export type Message = Record<string, unknown>;

export function typeNamed(name: string): protobuf.Type {
  return root.lookupType(name);
}

export function methodNamed(name: string): { request: protobuf.Type; response: protobuf.Type } {
  const method = root.lookupService("posenc.v1.PositionalEncodingService").methods[name];
  return { request: method.resolvedRequestType!, response: method.resolvedResponseType! };
}

const snake = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const below = (path: string, name: string) => (path === "" ? name : `${path}.${name}`);

/** The message that an object describes, ready to be encoded. Throws if a key or a value is none of the type's. */
export function toMessage(type: protobuf.Type, value: unknown, path = ""): Message {
  if (typeof value !== "object" || value === null || Array.isArray(value) || ArrayBuffer.isView(value)) {
    const wanted = type.name === "Tensor" ? "a tensor, as tensor(elements, shape) makes it" : `an object, as ${type.name} has it`;
    throw invalid(path || "arguments", `must be ${wanted}`);
  }
  if (value instanceof Tensor && type.name === "Tensor") return tensorMessage(value, path);
  const message: Message = {};
  for (const [key, item] of Object.entries(value)) {
    if (item === undefined || item === null) continue;
    const field = Object.hasOwn(type.fields, key) ? type.fields[key] : undefined;
    if (field === undefined) {
      throw invalid(below(path, key), `is not known; known: ${Object.keys(type.fields).join(", ")}`, "FIELD_UNKNOWN");
    }
    const where = below(path, snake(key));
    if (field.partOf && field.partOf.oneof.some((other) => Object.hasOwn(message, other))) {
      throw invalid(where, `is set beside another of: ${field.partOf.oneof.map(snake).join(", ")}; must be one`);
    }
    if (field.repeated) {
      if (!Array.isArray(item) && !ArrayBuffer.isView(item)) throw invalid(where, "must be an array");
      message[key] = Array.from(item as ArrayLike<unknown>, (each, i) => toField(field, each, `${where}[${i}]`));
    } else {
      message[key] = toField(field, item, where);
    }
  }
  return message;
}

function tensorMessage(tensor: Tensor, path: string): Message {
  return {
    dtype: enumValue(root.lookupEnum("posenc.v1.Dtype"), tensor.dtype, below(path, "dtype")),
    shape: tensor.shape.map((extent, i) => integer(extent, below(path, `shape[${i}]`))),
    data: bytesOf(tensor.data),
  };
}

function toField(field: protobuf.Field, value: unknown, path: string): unknown {
  if (field.resolvedType instanceof protobuf.Enum) return enumValue(field.resolvedType, value, path);
  if (field.resolvedType instanceof protobuf.Type) return toMessage(field.resolvedType, value, path);
  switch (field.type) {
    case "double":
      // JSON writes non-finite numbers as text.
      if (value === "NaN" || value === "Infinity" || value === "-Infinity") return Number(value);
      if (typeof value !== "number") throw invalid(path, "must be a number");
      return value;
    case "int32": {
      const number = integer(value, path);
      if (Number(number) !== (Number(number) | 0)) throw invalid(path, `is ${number}; must be an integer of 32 bits`);
      return number;
    }
    case "int64":
      return integer(value, path);
    case "bytes":
      if (typeof value === "string") return Buffer.from(value, "base64");
      if (!ArrayBuffer.isView(value)) throw invalid(path, "must be a typed array");
      return bytesOf(value);
    default: {
      const wanted = field.type === "bool" ? "boolean" : "string";
      if (typeof value !== wanted) throw invalid(path, `must be a ${wanted}`);
      return value;
    }
  }
}

// Larger integers than a number holds are given as a bigint, or as JSON's text.
// protobufjs takes them as two halves.
function integer(value: unknown, path: string): unknown {
  if (Number.isSafeInteger(value)) return value;
  if (typeof value !== "bigint" && !(typeof value === "string" && /^-?\d+$/.test(value))) {
    throw invalid(path, `is ${String(value)}; must be an integer`);
  }
  const big = BigInt(value);
  if (big !== BigInt.asIntN(64, big)) throw invalid(path, `is ${big}; must be an integer of 64 bits`);
  if (Number.isSafeInteger(Number(big))) return Number(big);
  return { low: Number(BigInt.asIntN(32, big)), high: Number(big >> 32n), unsigned: false, valueOf: () => Number(big) };
}

const upperSnake = (name: string) => name.replace(/(?<=[a-z0-9])(?=[A-Z])/g, "_").toUpperCase();

// Names are the contract's, "LAYOUT_BSHD", or short, "bshd".
function enumValue(type: protobuf.Enum, value: unknown, path: string): number {
  if (typeof value === "number") {
    if (value !== (value | 0)) throw invalid(path, `is ${value}; must be an integer of 32 bits`);
    return value;
  }
  const prefix = `${upperSnake(type.name)}_`;
  const name = String(value).toUpperCase();
  const number = type.values[name] ?? type.values[prefix + name];
  if (number !== undefined) return number;
  const known = Object.keys(type.values).slice(1);
  throw invalid(path, `is ${typeof value === "string" ? JSON.stringify(value) : String(value)}; known: ${known.map((each) => each.slice(prefix.length).toLowerCase()).join(", ")}`);
}

/**
 * The plain object of a decoded message: fields that were not sent have their default, messages that were not sent are
 * absent, enums have their names. `wanted` says where tensors of this message go, by field.
 */
export function fromMessage(type: protobuf.Type, message: protobuf.Message, wanted: Record<string, Wanted> = {}): Message {
  const sent = message as unknown as Message;
  const plain: Message = {};
  for (const field of type.fieldsArray) {
    const value = sent[field.name];
    const isSet = Object.hasOwn(sent, field.name) && value !== null;
    if (!isSet && (field.partOf || (field.resolvedType instanceof protobuf.Type && !field.repeated))) continue;
    if (field.repeated) plain[field.name] = (value as unknown[]).map((item) => fromField(field, item, {}));
    else plain[field.name] = fromField(field, value, wanted[field.name] ?? {});
  }
  return plain;
}

function fromField(field: protobuf.Field, value: unknown, wanted: Wanted): unknown {
  if (field.resolvedType instanceof protobuf.Enum) return field.resolvedType.valuesById[value as number] ?? value;
  if (field.resolvedType instanceof protobuf.Type) {
    const message = value as protobuf.Message;
    return field.resolvedType.name === "Tensor" ? toTensor(message, wanted, field.name) : fromMessage(field.resolvedType, message);
  }
  return field.type === "int64" ? Number(value) : value;
}

/** A received tensor. What was sent as written `values` comes back so, and is then a Float64Array of its numbers. */
export function toTensor(message: protobuf.Message, wanted: Wanted = {}, field = "tensor"): Tensor {
  const { dtype, shape, values, data } = message as unknown as { dtype: number; shape: unknown[]; values: number[]; data: Uint8Array };
  const name = dtypeName(dtype);
  // Data that was not sent is protobufjs' empty array.
  const bytes = data instanceof Uint8Array ? data : new Uint8Array();
  checkAnswer(field, name, shape.map(Number), values.length > 0 ? values.length * (elementBytes(name) ?? 0) : bytes.byteLength, wanted);
  const elements = values.length > 0 ? Float64Array.from(values) : received(bytes, name, wanted);
  return new Tensor(elements, shape.map(Number), name);
}

/** Throws unless a tensor of an answer has all of its bytes, and the requested type and shape. */
export function checkAnswer(field: string, dtype: Dtype, shape: readonly number[], bytes: number, { dtype: wantedType = dtype, shape: wantedShape = shape, placed }: Wanted): void {
  const size = shape.reduce((product, extent) => product * extent, elementBytes(dtype) ?? NaN);
  const counts = shape.every((extent) => extent >= 0) && !Number.isNaN(size);
  if (counts && (placed || size === bytes) && dtype === wantedType && sameShape(shape, wantedShape)) return;
  const text = `the answer's ${field} is ${dtype} [${shape}] with ${bytes} bytes; must be ${wantedType} [${wantedShape}]`;
  throw new PosencError(text, { code: "INTERNAL" });
}

const sameShape = (one: readonly number[], other: readonly number[]) => one.length === other.length && one.every((extent, i) => extent === Number(other[i]));

/** Decodes a received message; every error of the parser becomes the same error. */
export function decoded(type: protobuf.Type, bytes: Uint8Array): protobuf.Message {
  try {
    return type.decode(bytes);
  } catch (cause) {
    throw new PosencError(`the answer is no ${type.name}: ${(cause as Error).message}`, { code: "INTERNAL", cause });
  }
}

/** Throws unless the answer has these tensors. */
export function checkPresent(answer: object, names: readonly string[]): void {
  for (const name of names) {
    if ((answer as Message)[name] === undefined) throw new PosencError(`the answer has no ${name}`, { code: "INTERNAL" });
  }
}

/** Returns a dtype's name; a number from a newer contract is its own name. */
export function dtypeName(dtype: number): Dtype {
  const name = root.lookupEnum("posenc.v1.Dtype").valuesById[dtype] ?? `DTYPE_${dtype}`;
  return name.slice("DTYPE_".length).toLowerCase() as Dtype;
}
