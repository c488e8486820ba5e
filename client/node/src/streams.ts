// Streams of tensors. The first message of ApplyRopeStream or RepositionStream describes the call. The other messages
// carry the elements.
import type { Call, Calls } from "./calls";
import { falseAnswer, invalid } from "./errors";
import { describe, type Fields, methodNamed } from "./schema";
import { bytesOf, Result, sizeOf, type Tensor, type Wanted } from "./tensor";
import { dataFrame, frame } from "./wire";

// The order of bytes in a stream: ids and shifts, then the tensors.
const order: Record<string, string[][]> = {
  ApplyRope: [["positions", "ids"], ["q"], ["k"]],
  Reposition: [["movement", "oldPositions", "ids"], ["movement", "newPositions", "ids"], ["movement", "shifts"], ["k"]],
};

// The server recommends chunks of 4 MiB. With chunks of 1 MiB, grpc-js took a quarter less time for 64 MiB, because
// buffers of this size are reused while they are still in a processor's cache. The size is a multiple of the size of
// every element and of nearly every head, so that the server can rotate in place.
const largestChunkBytes = (1 << 20) - (64 << 10);

// Maximum size of a chunk's message in bytes, without the chunk.
const chunkHeadBytes = 16;

/** The bytes of tensors in chunks. A chunk may end between any two elements. */
export type Chunks = Iterable<ArrayBufferView> | AsyncIterable<ArrayBufferView>;

/**
 * Returns the size of a chunk in bytes, so that its message has at most `limitBytes`. A chunk always has whole
 * elements, even if the limit is too low for one element.
 */
export function chunkBytesFor(limitBytes: number): number {
  return Math.max(8, Math.min(largestChunkBytes, limitBytes - chunkHeadBytes) & ~7);
}

/** A request without the elements that a stream sends, and these elements in the order of the stream. */
export interface Split {
  request: Fields;
  data: Uint8Array[];
}

export function split(name: string, request: Fields): Split {
  const data: Uint8Array[] = [];
  return { request: order[name].reduce((message, path) => withoutData(message, path, data), request), data };
}

// Elements stay in the message if they are `values`, or if their number does not fit the shape. In the second case, the
// server's error then names the fault.
function withoutData(message: Fields, [key, ...rest]: string[], taken: Uint8Array[]): Fields {
  const value = message[key] as Fields | undefined;
  if (value === undefined) return message;
  if (rest.length > 0) return { ...message, [key]: withoutData(value, rest, taken) };
  const { data, ...described } = value as { data?: Uint8Array };
  if (data?.byteLength !== sizeOf(describe(value)!)) return message;
  taken.push(data);
  return { ...message, [key]: described };
}

const tensorsOf = ({ q, k }: Fields) => [q, k].filter((tensor) => tensor !== undefined) as Fields[];

/** Splits a request if a stream can send all elements of its tensors q and k; otherwise returns undefined. */
export function splitWhole(name: string, request: Fields): Split | undefined {
  const parts = name in order ? split(name, request) : undefined;
  const isWhole = parts && tensorsOf(parts.request).every((tensor) => tensor !== request.q && tensor !== request.k);
  return isWhole ? parts : undefined;
}

/** Yields the bytes of the rotated q, and then of the rotated k, when they arrive. */
export async function* rotatedBytes(
  calls: Calls,
  name: string,
  { request, data }: { request: Fields; data: Chunks },
  call: Call,
  chunkBytes: number,
): AsyncGenerator<Uint8Array> {
  const first = frame(methodNamed(`${name}Stream`).request, { call: request });
  async function* messages() {
    yield first;
    for await (const part of data) {
      if (!ArrayBuffer.isView(part)) throw invalid("chunks", "must have typed arrays only");
      const bytes = bytesOf(part);
      for (let at = 0; at < bytes.byteLength; at += chunkBytes) yield dataFrame(bytes.subarray(at, at + chunkBytes));
    }
  }
  const bytes = tensorsOf(request).reduce((sum, tensor) => sum + sizeOf(describe(tensor)!), 0);
  const largest = Math.max(first.size, chunkBytes + chunkHeadBytes);
  let done = 0;
  for await (const answer of calls.stream(`${name}Stream`, messages(), largest, call)) {
    const { data: part } = answer as { data: Uint8Array };
    done += part.length;
    if (done > bytes) throw falseAnswer(`it has more than the ${bytes} bytes of the tensors`);
    call.onProgress?.(done, bytes);
    yield part;
  }
  if (done < bytes) throw falseAnswer(`it has ${done} of ${bytes} bytes`);
}

/** Rotates with a stream. Returns the tensors by their names. */
export async function rotateAsStream(
  calls: Calls,
  name: string,
  parts: Split,
  wanted: Record<string, Wanted>,
  call: Call,
  chunkBytes: number,
): Promise<Fields> {
  const results = Object.entries(wanted).map(([field, each]) => new Result(each.described!, each, field));
  const places = results.map(({ bytes }) => bytes);
  for await (let bytes of rotatedBytes(calls, name, parts, call, chunkBytes)) {
    while (bytes.length > 0) {
      while (places[0].length === 0) places.shift();
      const part = bytes.subarray(0, places[0].length);
      places[0].set(part);
      places[0] = places[0].subarray(part.length);
      bytes = bytes.subarray(part.length);
    }
  }
  return Object.fromEntries(Object.keys(wanted).map((field, i) => [field, results[i].tensor()]));
}

type Shape = readonly number[];

function tensorIn(message: Fields, name: string): Tensor {
  if (message[name] === undefined) throw falseAnswer(`it has no ${name}`);
  return message[name] as Tensor;
}

/**
 * Joins tensors that come in blocks of rows and columns. All tensors have the same shape, which is [outer, rows,
 * columns] in the order of memory.
 */
export class Assembly {
  private readonly results: Result[];
  private done = 0; // number of bytes that have arrived

  /** Makes memory for the wanted tensors. Their dtypes are those of the first block. */
  constructor(
    private readonly shape: Shape,
    private readonly rowAxis: number,
    first: Fields,
    private readonly wanted: Record<string, Wanted>,
  ) {
    if (!shape.every((extent) => extent >= 0)) throw falseAnswer(`its shape is [${shape}]`);
    const described = (name: string) => ({ dtype: tensorIn(first, name).dtype, shape });
    this.results = Object.entries(wanted).map(([name, each]) => new Result(described(name), each, name));
  }

  /** Copies the tensors of a block to this row and column. */
  place(block: Fields, row: number, column = 0): void {
    Object.keys(this.wanted).forEach((name, i) => this.copy(tensorIn(block, name), this.results[i], row, column));
  }

  tensors(): Fields {
    const bytes = this.results.reduce((sum, result) => sum + result.bytes.length, 0);
    if (this.done !== bytes) throw falseAnswer(`its parts have ${this.done} of ${bytes} bytes`);
    return Object.fromEntries(Object.keys(this.wanted).map((name, i) => [name, this.results[i].tensor()]));
  }

  private copy({ data, dtype, shape }: Tensor, to: Result, row: number, column: number): void {
    const [whole, part] = [this.extentsOf(this.shape), this.extentsOf(shape)];
    const fits = row >= 0 && row + part[1] <= whole[1] && column >= 0 && column + part[2] <= whole[2];
    if (!fits || part[0] !== whole[0] || dtype !== to.described.dtype || data.byteLength !== sizeOf({ dtype, shape })) {
      throw falseAnswer(`a part ${dtype} [${shape}] is at ${row}, ${column} of [${this.shape}]`);
    }
    const [from, size] = [bytesOf(data), sizeOf({ dtype, shape: [] })];
    // If the block has whole rows, they are adjacent in the block and in the result.
    const run = (part[2] === whole[2] ? part[1] * part[2] : part[2]) * size;
    for (let begin = 0; begin < from.length; begin += run) {
      const line = begin / (part[2] * size); // the row's number in the block, over all outer indices
      const at = (Math.floor(line / part[1]) * whole[1] + row + (line % part[1])) * whole[2] + column;
      to.bytes.set(from.subarray(begin, begin + run), at * size);
    }
    this.done += from.length;
  }

  private extentsOf(shape: Shape): number[] {
    const product = (extents: Shape) => extents.reduce((all, each) => all * each, 1);
    return [product(shape.slice(0, this.rowAxis)), shape[this.rowAxis], product(shape.slice(this.rowAxis + 1))];
  }
}
