// The tensors of a table, the memory for them, and how to join them from a stream's rows.
import { checkKeys } from "./channels";
import { invalid, PosencError } from "./errors";
import type { BuildTableStreamResponse } from "./messages";
import { checkPresent, dtypeName, type Message } from "./schema";
import { SharedTensor } from "./shared";
import { allocate, bytesOf, checkMemory, type Dtype, type Elements, kindOf, received, Tensor, type Wanted } from "./tensor";

/** Memory for a table: cos and sin, or the single table of an absolute encoding or of the layout "complex". */
export interface TableOut {
  cos?: Elements | SharedTensor;
  sin?: Elements | SharedTensor;
  table?: Elements | SharedTensor;
}

const complex = 4; // TABLE_LAYOUT_COMPLEX

const at = (message: unknown, ...path: string[]) => path.reduce((value, key) => (value as Message | undefined | null)?.[key], message);
const extent = (message: unknown, ...path: string[]) => Number(at(message, ...path) ?? 0);
const lastOf = (values: unknown) => Number((values as unknown[] | undefined)?.at(-1) ?? 0);

/** The names of the tensors of a BuildTableRequest's answer. */
export function tableNames(request: Message): (keyof TableOut)[] {
  return request.rope === undefined || request.layout === complex ? ["table"] : ["cos", "sin"];
}

export function headsOf(request: Message): number {
  return extent(request, "rope", "spec", "explicitFrequencies", "heads");
}

function rowsOf(request: Message): number {
  // The last extent of ids counts tokens; the others are axes.
  const ids = at(request, "positions", "ids", "shape") as unknown[] | undefined;
  if (ids !== undefined && ids.length > 0) return lastOf(ids);
  const ends = at(request, "positions", "packed", "cuSeqlens") as unknown[] | undefined;
  if (ends !== undefined && ends.length > 0) return lastOf(ends);
  const grid = at(request, "absolute", "sincosGrid") as Message | undefined;
  if (grid === undefined) return Number(request.rows ?? 0);
  // A grid has a row for every cell, after the rows of special tokens.
  const cells = ((grid.extents as unknown[] | undefined) ?? []).reduce((product: number, each) => product * Number(each), 1);
  return cells + Number(grid.leadingZeroRows ?? 0);
}

/** Returns the shape of each tensor; undefined if only the server knows it: for presets, configurations, and requests that it will refuse. */
export function tableShape(request: Message): number[] | undefined {
  const [rows, heads, layout] = [rowsOf(request), headsOf(request), Number(request.layout ?? 0)];
  const rotary = extent(request, "rope", "spec", "rotaryDim");
  let shape: number[];
  if (request.rope !== undefined) {
    shape = [rows, ...(layout === complex ? [rotary / 2, 2] : [layout > 1 ? rotary : rotary / 2])];
  } else {
    const encoding = at(request, "absolute");
    const dim = ["sinusoidal", "sincosGrid", "timestep"].map((name) => extent(encoding, name, "dim")).find((each) => each !== 0);
    const learned = lastOf(at(encoding, "learned", "table", "shape"));
    shape = [rows, dim ?? (learned || 2 * lastOf(at(encoding, "fourierFeatures", "frequencies", "shape")))];
  }
  if (heads !== 0) shape.unshift(heads);
  return shape.every((each) => Number.isSafeInteger(each) && each > 0) ? shape : undefined;
}

export function tableDtype(request: Message): Dtype {
  return request.dtype ? dtypeName(request.dtype as number) : "float32";
}

const rowAxis = (request: Message) => (headsOf(request) > 0 ? 1 : 0);

function rowsIn(request: Message, messages: readonly BuildTableStreamResponse[]): number {
  return messages.reduce((sum, message) => sum + message[tableNames(request)[0]]!.shape[rowAxis(request)], 0);
}

/** Throws unless a stream's next rows follow the rows before, with the same types and shapes. */
export function checkNextRows(request: Message, before: readonly BuildTableStreamResponse[], next: BuildTableStreamResponse): void {
  const row = rowsIn(request, before);
  const axis = rowAxis(request);
  const names = tableNames(request);
  checkPresent(next, names);
  const rows = next[names[0]]!.shape[axis];
  const all = rowsOf(request);
  const fits = names.every((name) => {
    const { dtype, shape } = next[name]!;
    const first = (before[0] ?? next)[name]!;
    const alike = shape.length === first.shape.length && shape.every((extent, i) => extent > 0 && (i === axis || extent === first.shape[i]));
    return shape.length >= axis + 2 && alike && dtype === first.dtype && shape[axis] === rows;
  });
  if (fits && next.firstRow === row && !(all > 0 && row + rows > all)) return;
  throw new PosencError(`the table came with rows that do not fit it, after ${row} of ${all}`, { code: "INTERNAL" });
}

export function checkAllRows(request: Message, messages: readonly BuildTableStreamResponse[]): void {
  const [rows, all] = [rowsIn(request, messages), rowsOf(request)];
  if (messages.length === 0 || (all > 0 && rows !== all)) throw new PosencError(`the table came with ${rows} of ${all} rows`, { code: "INTERNAL" });
}

/** Throws if memory is given for a tensor that the table lacks, or of another shape or type than its tensor's. */
export function checkTableOut(request: Message, out: unknown): asserts out is TableOut {
  if (out === null || typeof out !== "object") throw invalid("out", "must be an object with cos, sin or table");
  checkKeys(out, ["cos", "sin", "table"], "out.");
  const [names, shape] = [tableNames(request), tableShape(request)];
  const dtype = tableDtype(request);
  for (const [name, memory] of Object.entries(out)) {
    if (memory === undefined) continue;
    if (!names.includes(name as keyof TableOut)) throw invalid(`${name}_output`, `is given; this table has ${names.join(" and ")}`);
    if (!(memory instanceof SharedTensor)) continue;
    if (memory.dtype !== dtype) throw invalid(`${name}_output`, `is ${memory.dtype}; must be ${dtype}`);
    if (shape !== undefined && JSON.stringify(memory.shape) !== JSON.stringify(shape)) {
      throw invalid(`${name}_output`, `has shape ${JSON.stringify(memory.shape)}; must have ${JSON.stringify(shape)}`);
    }
  }
}

/** Refuses a table for which there is no memory, by the first of its messages. */
export function checkTableMemory(request: Message, first: BuildTableStreamResponse): void {
  const axis = headsOf(request) > 0 ? 1 : 0;
  const sizes = tableNames(request).map((name) => {
    const part = first[name];
    // A part without rows, which no posencd sends, has no size.
    if (part === undefined || !(part.shape[axis] > 0)) return 0;
    return (part.data.byteLength / part.shape[axis]) * rowsOf(request);
  });
  checkMemory(sizes.reduce((sum, size) => sum + size, 0), Math.max(...sizes));
}

/** Joins the rows of a stream's messages. Where heads have rows of their own, a message has a block of each head's. */
export function joinRows(messages: BuildTableStreamResponse[], name: keyof TableOut, byHead: boolean, wanted: Wanted): Tensor {
  const parts = messages.map((message) => message[name]!);
  const axis = byHead ? 1 : 0;
  const { data, shape, dtype } = parts[0];
  const rows = parts.reduce((sum, part) => sum + part.shape[axis], 0);
  const outer = byHead ? shape[0] : 1;
  const bytes = parts.reduce((sum, part) => sum + part.data.byteLength, 0);
  const whole = allocate(kindOf(data), bytes);
  let offset = 0;
  for (let i = 0; i < outer; ++i) {
    for (const part of parts) {
      const size = part.data.byteLength / outer;
      bytesOf(whole).set(bytesOf(part.data).subarray(i * size, (i + 1) * size), offset);
      offset += size;
    }
  }
  const elements = received(bytesOf(whole), dtype, wanted);
  return new Tensor(elements, shape.map((each, i) => (i === axis ? rows : each)), dtype);
}
