// Converts plain objects to messages and back, by the contract's descriptors.
//
// protobufjs ignores keys that it does not know. Here such keys are errors: a mistyped `layot` must not become a
// request without a layout.
import protobuf from "protobufjs";
import { descriptors } from "./contract";
import { falseAnswer, invalid } from "./errors";
import { SharedTensor } from "./shared";
import { bytesOf, type Described, type Dtype, type Place, received, Tensor, type Wanted } from "./tensor";

/** An object with the fields of a message, as protobufjs represents it, or before it is converted. */
export type Fields = Record<string, unknown>;

const root = protobuf.Root.fromJSON(descriptors);
root.resolveAll();

export function typeNamed(name: string): protobuf.Type {
  return root.lookupType(name);
}

export function methodNamed(name: string): { request: protobuf.Type; response: protobuf.Type } {
  const method = root.lookupService("posenc.v1.PositionalEncodingService").methods[name];
  return { request: method.resolvedRequestType!, response: method.resolvedResponseType! };
}

export const snake = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const below = (path: string, name: string) => (path === "" ? name : `${path}.${name}`);

/**
 * Converts an object to a message that can be encoded. Throws if a key or a value does not fit the type. `asBytes`:
 * tensors in shared regions are sent as copies of their elements, not as places.
 */
export function toMessage(type: protobuf.Type, value: unknown, asBytes = false, path = ""): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value) || ArrayBuffer.isView(value)) {
    const isTensor = type.name === "Tensor";
    const wanted = isTensor ? "a tensor, as tensor(elements, shape) makes it" : `an object, as ${type.name} has it`;
    throw invalid(path || "arguments", `must be ${wanted}`);
  }
  const message: Fields = {};
  const given = value instanceof SharedTensor ? value.message(path, asBytes) : value;
  for (const [key, item] of Object.entries(given)) {
    if (item === undefined || item === null) continue;
    if (!Object.hasOwn(type.fields, key)) {
      throw invalid(below(path, key), `is not known; known: ${Object.keys(type.fields).join(", ")}`, "FIELD_UNKNOWN");
    }
    const field = type.fields[key];
    const where = below(path, snake(key));
    if (field.partOf?.oneof.some((other) => Object.hasOwn(message, other))) {
      throw invalid(where, `is set beside another of: ${field.partOf.oneof.map(snake).join(", ")}; must be one`);
    }
    if (field.repeated && !Array.isArray(item) && !ArrayBuffer.isView(item)) throw invalid(where, "must be an array");
    const convert = (each: unknown, place: string) => toField(field, each, asBytes, place);
    message[key] = field.repeated
      ? Array.from(item as ArrayLike<unknown>, (each, i) => convert(each, `${where}[${i}]`))
      : convert(item, where);
  }
  return message;
}

function toField({ resolvedType, type }: protobuf.Field, value: unknown, asBytes: boolean, path: string): unknown {
  if (resolvedType instanceof protobuf.Enum) return enumValue(resolvedType, value, path);
  if (resolvedType instanceof protobuf.Type) return toMessage(resolvedType, value, asBytes, path);
  if (type === "int32" || type === "int64") return integer(value, path, type === "int32" ? 32 : 64);
  if (type === "bytes") {
    if (typeof value === "string") return Buffer.from(value, "base64");
    if (!ArrayBuffer.isView(value)) throw invalid(path, "must be a typed array");
    return bytesOf(value);
  }
  // In JSON, infinity and NaN are text.
  if (type === "double" && ["NaN", "Infinity", "-Infinity"].includes(value as string)) return Number(value);
  const wanted = { double: "number", bool: "boolean" }[type] ?? "string";
  if (typeof value !== wanted) throw invalid(path, `must be a ${wanted}`);
  return value;
}

// An integer that a JavaScript number cannot hold exactly is given as a bigint, or as text. protobufjs accepts text.
function integer(value: unknown, path: string, bits: number): unknown {
  const isText = typeof value === "string" && /^-?\d+$/.test(value);
  if (!isText && typeof value !== "bigint" && !Number.isSafeInteger(value)) {
    throw invalid(path, `is ${String(value)}; must be an integer`);
  }
  const big = BigInt(value as number);
  if (big !== BigInt.asIntN(bits, big)) throw invalid(path, `is ${big}; must be an integer of ${bits} bits`);
  return Number.isSafeInteger(Number(big)) ? Number(big) : String(big);
}

// Converts the name of an enum value, in the contract's form, "LAYOUT_BSHD", or in the short form, "bshd".
function enumValue(type: protobuf.Enum, value: unknown, path: string): unknown {
  if (typeof value === "number") return integer(value, path, 32);
  const [unset, ...known] = Object.keys(type.values);
  const prefix = unset.slice(0, -"UNSPECIFIED".length);
  const name = String(value).toUpperCase();
  const number = type.values[name] ?? type.values[prefix + name];
  if (number !== undefined) return number;
  const names = known.map((each) => each.slice(prefix.length).toLowerCase()).join(", ");
  throw invalid(path, `is ${typeof value === "string" ? JSON.stringify(value) : String(value)}; known: ${names}`);
}

/**
 * Converts a decoded message to a plain object. A scalar that was not sent has its default, a message that was not sent
 * is absent, and an enum value is its name. `wanted` are the tensors that the message must have, by field.
 */
export function fromMessage(type: protobuf.Type, message: object, wanted: Record<string, Wanted> = {}): Fields {
  const sent = message as Fields;
  const plain: Fields = {};
  for (const field of type.fieldsArray) {
    const { name, partOf, resolvedType } = field;
    const isSet = Object.hasOwn(sent, name) && sent[name] !== null;
    if (!isSet && name in wanted) throw falseAnswer(`it has no ${name}`);
    if (!isSet && (partOf || (resolvedType instanceof protobuf.Type && !field.repeated))) continue;
    const convert = (value: unknown) => fromField(field, value, wanted[name] ?? {});
    plain[name] = field.repeated ? (sent[name] as unknown[]).map(convert) : convert(sent[name]);
  }
  return plain;
}

function fromField({ name, resolvedType, type }: protobuf.Field, value: unknown, wanted: Wanted): unknown {
  if (resolvedType instanceof protobuf.Enum) return resolvedType.valuesById[value as number] ?? value;
  if (!(resolvedType instanceof protobuf.Type)) return type === "int64" ? Number(value) : value;
  if (resolvedType.name === "Tensor") return toTensor(value as TensorFields, wanted, name);
  return fromMessage(resolvedType, value as object);
}

interface TensorFields {
  dtype?: number;
  shape?: unknown[];
  values: number[];
  data: Uint8Array;
}

// If a tensor was sent with `values`, the server's answer has `values`, too. These values become a Float64Array.
function toTensor(message: TensorFields, wanted: Wanted, field: string): Tensor | Place {
  const described = describe(message)!;
  const { values, data } = message;
  // If `data` was not sent, protobufjs has an empty array, which is not a Uint8Array.
  if (values.length === 0)
    return received(described, data instanceof Uint8Array ? data : new Uint8Array(), wanted, field);
  if (wanted.out !== undefined) throw invalid(`${field}_output`, "takes no written values; give the input's elements");
  return new Tensor(Float64Array.from(values), described.shape, described.dtype);
}

/** Returns type and shape of a tensor message, or undefined if there is no tensor. */
export function describe(tensor: unknown): Described | undefined {
  if (tensor === undefined) return undefined;
  const { dtype = 0, shape = [] } = tensor as TensorFields;
  return { dtype: dtypeName(dtype), shape: shape.map(Number) };
}

/** Returns the name of a dtype. A number of a newer contract, which has no name here, is returned as text. */
export function dtypeName(dtype: number): Dtype {
  const name = root.lookupEnum("posenc.v1.Dtype").valuesById[dtype] ?? `DTYPE_${dtype}`;
  return name.slice("DTYPE_".length).toLowerCase() as Dtype;
}

/** Decodes a received message. Every error of the parser becomes the same PosencError. */
export function decoded(type: protobuf.Type, bytes: Uint8Array): object {
  try {
    return type.decode(bytes);
  } catch (cause) {
    throw falseAnswer(`it is no ${type.name}: ${(cause as Error).message}`, cause);
  }
}
