// Tensors that go through streams. Those of ApplyRope and Reposition do so as bytes: the first message describes the
// call, the others carry the elements.
import type { Call, Calls } from "./calls";
import { falseAnswer } from "./errors";
import { describe, type Fields, methodNamed } from "./schema";
import { bytesOf, type Described, Result, sizeOf, type Tensor, type Wanted } from "./tensor";
import { dataFrame, frame } from "./wire";

// The order of bytes in a stream: ids and shifts, then the tensors.
const order: Record<string, string[][]> = {
  ApplyRope: [["positions", "ids"], ["q"], ["k"]],
  Reposition: [["movement", "oldPositions", "ids"], ["movement", "newPositions", "ids"], ["movement", "shifts"], ["k"]],
};

// The server recommends 4 MiB. With chunks of 1 MiB, grpc-js took a quarter less time for 64 MiB: their buffers are
// reused while they are still in a processor's cache. A multiple of every element and of nearly every head, so that the
// server can answer in place.
const largestChunkBytes = (1 << 20) - (64 << 10);

// A chunk's message has at most this much beside the chunk.
const chunkHeadBytes = 16;

/** Bytes of a chunk whose message has at most `limitBytes`: whole elements, also if the limit is very low. */
export function chunkBytesFor(limitBytes: number): number {
  return Math.max(8, Math.min(largestChunkBytes, limitBytes - chunkHeadBytes) & ~7);
}

/** A request without the elements that go through its stream, and these in their order. */
export interface Split {
  request: Fields;
  data: Uint8Array[];
}

export function split(name: string, request: Fields): Split {
  const data: Uint8Array[] = [];
  return { request: order[name].reduce((message, path) => withoutData(message, path, data), request), data };
}

// Elements stay where they are if they are written values, or not as many as described: the server names the fault.
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

/** Returns the parts of a request if all elements of its tensors can go through a stream. */
export function splitWhole(name: string, request: Fields): Split | undefined {
  const parts = name in order ? split(name, request) : undefined;
  const isWhole = parts && tensorsOf(parts.request).every((tensor) => tensor !== request.q && tensor !== request.k);
  return isWhole ? parts : undefined;
}

/** Yields the bytes of the rotated q, then of the rotated k, as they come. */
export async function* rotatedBytes(
  calls: Calls,
  name: string,
  { request, data }: { request: Fields; data: Iterable<Uint8Array> | AsyncIterable<Uint8Array> },
  call: Call,
  chunkBytes: number,
): AsyncGenerator<Uint8Array> {
  const first = frame(methodNamed(`${name}Stream`).request, { call: request });
  async function* messages() {
    yield first;
    for await (const bytes of data) {
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

/** Rotates by a stream. The result has the tensors by their names. */
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

/** A tensor that comes in blocks of some rows and columns: [outer, rows, columns] in memory order. */
export class Assembly {
  private readonly result: Result;
  private done = 0; // bytes

  constructor(
    private readonly described: Described,
    private readonly rowAxis: number,
    private readonly field: string,
    wanted: Wanted = {},
  ) {
    if (!(sizeOf(described) >= 0)) throw falseAnswer(`${field} is ${described.dtype} [${described.shape}]`);
    this.result = new Result(described, wanted, field);
  }

  /** Copies a block to its place. */
  place({ data, shape, dtype }: Tensor, row: number, column = 0): void {
    const whole = this.extentsOf(this.described.shape);
    const [outer, rows, columns] = this.extentsOf(shape);
    const size = sizeOf({ dtype, shape: [] });
    const isAlike =
      dtype === this.described.dtype && outer === whole[0] && data.byteLength === sizeOf({ dtype, shape });
    if (!isAlike || !(row >= 0 && row + rows <= whole[1] && column >= 0 && column + columns <= whole[2])) {
      const text = `${dtype} [${shape}] at ${row}, ${column} of [${this.described.shape}]`;
      throw falseAnswer(`${this.field} has a part ${text}`);
    }
    const from = bytesOf(data);
    // Whole rows lie side by side on both sides.
    const run = (columns === whole[2] ? rows * columns : columns) * size;
    for (let begin = 0; begin < from.length; begin += run) {
      const line = begin / (columns * size); // a row, counted over all outer ones
      const to = (Math.floor(line / rows) * whole[1] + row + (line % rows)) * whole[2] + column;
      this.result.bytes.set(from.subarray(begin, begin + run), to * size);
    }
    this.done += from.length;
  }

  tensor(): unknown {
    const { length } = this.result.bytes;
    if (this.done !== length) throw falseAnswer(`the parts of ${this.field} have ${this.done} bytes; it has ${length}`);
    return this.result.tensor();
  }

  private extentsOf(shape: readonly number[]): number[] {
    const product = (extents: readonly number[]) => extents.reduce((all, each) => all * each, 1);
    return [product(shape.slice(0, this.rowAxis)), shape[this.rowAxis], product(shape.slice(this.rowAxis + 1))];
  }
}
