import { constants } from "node:buffer";
import os from "node:os";
import { falseAnswer, invalid, PosencError } from "./errors";

export type Dtype =
  "float32" | "float16" | "bfloat16" | "float64" | "int32" | "int64" | "float8_e4m3fn" | "float8_e5m2" | "int8";

/**
 * The elements of a tensor. 16-bit floats are a Uint16Array of their bits. 8-bit floats (FP8) and raw little-endian
 * bytes are a Uint8Array.
 */
export type Elements = Float32Array | Float64Array | Uint16Array | Int32Array | BigInt64Array | Int8Array | Uint8Array;

/** A tensor in the contract's JSON, for small inputs that are written by hand. */
export interface TensorMessage {
  dtype?: Dtype | `DTYPE_${Uppercase<Dtype>}`;
  shape?: (number | bigint)[];
  values?: number[];
  data?: Uint8Array | string;
}

// A constructor of typed arrays. Newer versions of Node also have a Float16Array.
interface Kind {
  new (buffer: ArrayBufferLike, byteOffset?: number, length?: number): Elements;
  readonly BYTES_PER_ELEMENT: number;
  readonly name: string;
}

const arrays: Record<string, Kind | undefined> = {
  float32: Float32Array,
  float64: Float64Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  float8_e4m3fn: Uint8Array,
  float8_e5m2: Uint8Array,
  int8: Int8Array,
};

// Returns the dtype of the elements, from the name of the array's class; undefined for arrays of bits or bytes.
const dtypeOf = ({ name }: Kind) => {
  const dtype = name.replace("Big", "").replace("Array", "").toLowerCase();
  return dtype in arrays ? (dtype as Dtype) : undefined;
};

/** A row-major tensor. It refers to the caller's elements, and does not copy them. */
export class Tensor<E extends Elements = Elements> {
  constructor(
    readonly data: E,
    readonly shape: readonly number[],
    readonly dtype: Dtype,
  ) {}
}

/**
 * Makes a tensor of these elements. By default it has one axis. The type of the array determines the dtype, except for
 * a Uint16Array ("bfloat16" or "float16") and a Uint8Array (the bytes of any dtype).
 */
export function tensor<E extends Elements>(data: E, shape?: readonly number[], dtype?: Dtype): Tensor<E> {
  if (!ArrayBuffer.isView(data) || data instanceof DataView) throw invalid("data", "must be a typed array");
  const kind = kindOf(data);
  const of = dtype ?? dtypeOf(kind);
  if (of === undefined) throw invalid("dtype", `is missing; ${kind.name} does not tell it`, "FIELD_REQUIRED");
  if (os.endianness() !== "LE") throw invalid("data", "must be little-endian, which this machine is not");
  if (shape === undefined && data instanceof Uint8Array) throw invalid("shape", "is missing", "FIELD_REQUIRED");
  if (shape !== undefined && !Array.isArray(shape)) throw invalid("shape", "must be an array of integers");
  return new Tensor(data, shape ?? [data.length], of);
}

// A Buffer is a Uint8Array, but its own constructor is deprecated.
function kindOf(elements: ArrayBufferView): Kind {
  return elements instanceof Uint8Array ? Uint8Array : (elements.constructor as unknown as Kind);
}

export function bytesOf(elements: ArrayBufferView): Uint8Array {
  if (elements.byteLength === 0) return new Uint8Array(); // memory that was transferred away cannot be viewed
  return new Uint8Array(elements.buffer, elements.byteOffset, elements.byteLength);
}

/** The dtype and the shape of a tensor. */
export interface Described {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
}

/** Returns the size of a tensor in bytes, or NaN if there is no such dtype. */
export function sizeOf({ dtype, shape }: Described): number {
  return shape.reduce((product, extent) => product * extent, arrays[dtype]?.BYTES_PER_ELEMENT ?? NaN);
}

/** Returns elements in new memory that is not cleared. The caller must overwrite all of it. */
export function allocate(described: Described, kind = arrays[described.dtype]!): Elements {
  const [bytes, most] = [sizeOf(described), Math.min(os.totalmem(), constants.MAX_LENGTH)];
  if (bytes > most) {
    const text = `the result has ${bytes} bytes, but memory or a buffer only ${most}; ask for less, or take it in parts`;
    throw new PosencError(text, { code: "RESOURCE_EXHAUSTED" });
  }
  const memory = Buffer.allocUnsafeSlow(bytes);
  return new kind(memory.buffer, memory.byteOffset, memory.length / kind.BYTES_PER_ELEMENT);
}

/** A place for a tensor's bytes outside of this process's memory: a SharedTensor. */
export interface Place extends Described {
  write(elements: Elements): unknown;
}

/** A result before its bytes arrive: its dtype and shape, if they are known, and the memory for it. */
export interface Wanted {
  /** Undefined if only the server knows dtype and shape. */
  described?: Described;
  /** The caller's memory. Undefined: a new array, of the same kind as `like`. */
  out?: ArrayBufferView | Place;
  like?: ArrayBufferView;
  /** Whether the server itself writes to `out`. */
  isPlaced?: boolean;
}

/** Throws if `out` is not memory for this tensor: raw bytes, or elements of the tensor's type, of the right size. */
export function checkOut(out: unknown, { dtype, shape }: Described, field: string): void {
  if (ArrayBuffer.isView(out)) {
    const [kind, bytes] = [kindOf(out), sizeOf({ dtype, shape })];
    if (kind !== Uint8Array && kind !== arrays[dtype] && dtypeOf(kind) !== dtype) {
      throw invalid(field, `is a ${kind.name}; must be a ${arrays[dtype]?.name}, for ${dtype}`);
    }
    if (out.byteLength !== bytes) throw invalid(field, `has ${out.byteLength} bytes; the result has ${bytes}`);
    return;
  }
  const place = out as Place | null;
  if (place?.shape === undefined) throw invalid(field, "must be a typed array, or a tensor of a region");
  if (place.shape.join() !== shape.join())
    throw invalid(field, `has shape [${place.shape}]; the result has [${shape}]`);
  if (place.dtype !== dtype) throw invalid(field, `is ${place.dtype}; must be ${dtype}`);
}

/** A result whose bytes come in parts. */
export class Result {
  readonly bytes: Uint8Array;
  private readonly elements: Elements;

  constructor(
    readonly described: Described,
    private readonly wanted: Wanted,
    field: string,
  ) {
    const { out, like } = wanted;
    if (out !== undefined) checkOut(out, described, `${field}_output`);
    this.elements = ArrayBuffer.isView(out) ? (out as Elements) : allocate(described, like && kindOf(like));
    this.bytes = bytesOf(this.elements);
  }

  /** Returns the result. It contains the bytes that were written so far. */
  tensor(): Tensor | Place {
    const { out } = this.wanted;
    if (out === undefined || ArrayBuffer.isView(out)) {
      return new Tensor(this.elements, this.described.shape, this.described.dtype);
    }
    out.write(this.elements);
    return out;
  }
}

/** Returns the tensor of a received message. Copies the bytes only to `out`, or if they are not aligned. */
export function received(is: Described, data: Uint8Array, wanted: Wanted, field: string): Tensor | Place {
  const { dtype, shape } = wanted.described ?? is;
  const fits = is.dtype === dtype && is.shape.join() === shape.join() && is.shape.every((extent) => extent >= 0);
  if (!fits || (!wanted.isPlaced && sizeOf(is) !== data.byteLength)) {
    const text = `${field} is ${is.dtype} [${is.shape}] with ${data.byteLength} bytes; must be ${dtype} [${shape}]`;
    throw falseAnswer(text);
  }
  if (wanted.isPlaced) return wanted.out as Place;
  const kind = wanted.like === undefined ? arrays[dtype]! : kindOf(wanted.like);
  if (wanted.out === undefined && data.byteOffset % kind.BYTES_PER_ELEMENT === 0) {
    return new Tensor(new kind(data.buffer, data.byteOffset, data.length / kind.BYTES_PER_ELEMENT), shape, dtype);
  }
  const result = new Result(is, wanted, field);
  result.bytes.set(data);
  return result.tensor();
}
