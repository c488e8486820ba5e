import { constants } from "node:buffer";
import os from "node:os";
import { invalid, PosencError } from "./errors";

export type Dtype = "float32" | "float16" | "bfloat16" | "float64" | "int32" | "int64" | "float8_e4m3fn" | "float8_e5m2";

/**
 * Memory of a tensor. 16-bit floats are a Uint16Array of their bits, 8-bit ones (FP8) and raw little-endian bytes a
 * Uint8Array.
 */
export type Elements = Float32Array | Float64Array | Uint16Array | Int32Array | BigInt64Array | Uint8Array;

/** A tensor in the contract's JSON, for small inputs that are written by hand. */
export interface TensorMessage {
  dtype?: Dtype | `DTYPE_${Uppercase<Dtype>}`;
  shape?: (number | bigint)[];
  values?: number[];
  data?: Uint8Array | string;
}

const arrays: Record<Dtype, Kind> = {
  float32: Float32Array,
  float64: Float64Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  float8_e4m3fn: Uint8Array,
  float8_e5m2: Uint8Array,
};

// A constructor of typed arrays; newer versions of Node have a Float16Array too.
interface Kind {
  new (buffer: ArrayBufferLike, byteOffset?: number, length?: number): Elements;
  readonly BYTES_PER_ELEMENT: number;
  readonly name: string;
}

/** Bytes of an element; undefined if there is no such type. */
export function elementBytes(dtype: Dtype): number | undefined {
  return Object.hasOwn(arrays, dtype) ? arrays[dtype].BYTES_PER_ELEMENT : undefined;
}

export function kindFor(dtype: Dtype): Kind {
  return arrays[dtype];
}

const dtypes: Record<string, Dtype> = {
  Float32Array: "float32",
  Float64Array: "float64",
  Float16Array: "float16",
  Int32Array: "int32",
  BigInt64Array: "int64",
};

/** Elements with a shape, row-major. The elements are borrowed, never copied. */
export class Tensor<E extends Elements = Elements> {
  constructor(
    readonly data: E,
    readonly shape: readonly number[],
    readonly dtype: Dtype,
  ) {}
}

/**
 * A tensor of these elements. The shape is [elements] unless it is given. Typed arrays tell the dtype, but for a
 * Uint16Array ("bfloat16" or "float16") and a Uint8Array (the bytes of any).
 */
export function tensor<E extends Elements>(data: E, shape?: readonly number[], dtype?: Dtype): Tensor<E> {
  if (!ArrayBuffer.isView(data) || data instanceof DataView) throw invalid("data", "must be a typed array");
  const of = dtype ?? dtypes[kindOf(data).name];
  if (of === undefined) throw invalid("dtype", `is missing; ${kindOf(data).name} does not tell it`, "FIELD_REQUIRED");
  if (os.endianness() !== "LE") throw invalid("data", "must be little-endian, which this machine is not");
  if (shape === undefined && data instanceof Uint8Array) throw invalid("shape", "is missing", "FIELD_REQUIRED");
  if (shape !== undefined && !Array.isArray(shape)) throw invalid("shape", "must be an array of integers");
  return new Tensor(data, shape ?? [data.length], of);
}

export function kindOf(elements: ArrayBufferView): Kind {
  // A Buffer is a Uint8Array with an old constructor.
  return elements instanceof Uint8Array ? Uint8Array : (elements as unknown as { constructor: Kind }).constructor;
}

export function bytesOf(elements: ArrayBufferView): Uint8Array {
  if (elements.byteLength === 0) return new Uint8Array(); // memory that was given away cannot even be viewed
  return new Uint8Array(elements.buffer, elements.byteOffset, elements.byteLength);
}

/** Refuses a result larger than the machine's memory, or than Node's largest buffer. */
export function checkMemory(bytes: number, largest = bytes): void {
  const memory = os.totalmem();
  if (bytes <= memory && largest <= constants.MAX_LENGTH) return;
  const room = bytes > memory ? `this machine ${memory} of memory` : `a buffer of Node's at most ${constants.MAX_LENGTH}`;
  throw new PosencError(`the result has ${bytes} bytes, and ${room}; ask for less, or take it in parts`, { code: "RESOURCE_EXHAUSTED" });
}

/** Returns elements of fresh memory that is not cleared: the caller overwrites all of it. */
export function allocate(kind: Kind, bytes: number): Elements {
  const memory = Buffer.allocUnsafeSlow(bytes);
  return new kind(memory.buffer, memory.byteOffset, bytes / kind.BYTES_PER_ELEMENT);
}

/** The memory for a result: the caller's, or new elements of the same kind as the input's. */
export interface Wanted {
  out?: ArrayBufferView;
  like?: ArrayBufferView;
  name?: string; // of `out`, for errors
  dtype?: Dtype; // which the result must have, if it is known
  shape?: readonly number[]; // likewise
  placed?: boolean; // the server writes it to shared memory
}

/** Returns the elements of a received tensor. Copies at most once: to `out`, or if they are not aligned. */
export function received(bytes: Uint8Array, dtype: Dtype, wanted: Wanted): Elements {
  if (wanted.out !== undefined) {
    checkOut(wanted.out, dtype, bytes.byteLength, wanted.name ?? "out");
    bytesOf(wanted.out).set(bytes);
    return wanted.out as Elements;
  }
  const kind = wanted.like === undefined ? arrays[dtype] : kindOf(wanted.like);
  const size = kind.BYTES_PER_ELEMENT;
  if (bytes.byteOffset % size === 0) return new kind(bytes.buffer, bytes.byteOffset, bytes.byteLength / size);
  const copy = allocate(kind, bytes.byteLength);
  bytesOf(copy).set(bytes);
  return copy;
}

/** Throws unless `out` has elements of the dtype, or raw bytes, and as many as the result. */
export function checkOut(out: unknown, dtype: Dtype, bytes: number, name: string): void {
  if (!ArrayBuffer.isView(out)) throw invalid(name, "must be a typed array");
  const kind = kindOf(out);
  if (kind !== Uint8Array && kind !== arrays[dtype] && dtypes[kind.name] !== dtype) {
    throw invalid(name, `is a ${kind.name}; must be a ${arrays[dtype].name}, for ${dtype}`);
  }
  if (out.byteLength !== bytes) throw invalid(name, `has ${out.byteLength} bytes; the result has ${bytes}`);
}
