// Cuts a tensor of heads, and the positions of its tokens, into parts that go
// through a stream one by one, each like a separate request.
// A part is contiguous memory. So a tensor is cut along its outermost dimension, and along inner ones only if one step
// of the outer is too large:
//
//   bshd, [2, 3, H, D], at most 2 tokens a part
//
//     sequence 0            sequence 1
//     +----+----+----+      +----+----+----+
//     | t0 | t1 | t2 |      | t0 | t1 | t2 |      memory goes on to the right
//     +----+----+----+      +----+----+----+
//      \_ part 0_/ \_1/       \_ part 2_/ \_3/
// Every token is rotated only by its own position, so positions are cut in the same way: part 1 starts at the position
// of t2.
// If shape and layout, or tensor and positions, do not fit together, the functions return undefined, and the server
// reports the mistake.
import { typeNamed, type Message } from "./schema";

type Axis = "batch" | "token" | "head" | "channel";
type Range = readonly [begin: number, end: number];

/** Sequences, tokens and heads of a part, and its place in the tensor. */
export interface Part {
  ranges: Record<Axis, Range>;
  shape: number[];
  offset: number;
  bytes: number;
}

export type Extents = Record<Axis, number>;

// Dimensions from the outermost in, by the contract's names, and how many of
// them may be cut: channels never, and heads only in BHSD, in which a head has
// all its tokens side by side.
const layouts: Record<string, { axes: Axis[]; cuttable: number }> = {
  LAYOUT_BSHD: { axes: ["batch", "token", "head", "channel"], cuttable: 2 },
  LAYOUT_BHSD: { axes: ["batch", "head", "token", "channel"], cuttable: 3 },
  LAYOUT_SBHD: { axes: ["token", "batch", "head", "channel"], cuttable: 2 },
  LAYOUT_THD: { axes: ["token", "head", "channel"], cuttable: 1 },
};

const elementBytes: Record<string, number> = {
  DTYPE_FLOAT32: 4,
  DTYPE_FLOAT16: 2,
  DTYPE_BFLOAT16: 2,
  DTYPE_FLOAT64: 8,
  DTYPE_INT32: 4,
  DTYPE_INT64: 8,
  DTYPE_FLOAT8_E4M3FN: 1,
  DTYPE_FLOAT8_E5M2: 1,
};

function enumName(type: string, value: unknown): string {
  return typeNamed("posenc.v1.Tensor").root.lookupEnum(`posenc.v1.${type}`).valuesById[value as number] ?? "";
}

const sizeOf = (tensor: Message) => elementBytes[enumName("Dtype", tensor.dtype)] ?? 0;
const shapeOf = (tensor: Message) => ((tensor.shape as unknown[] | undefined) ?? []).map(Number);
const numbers = (list: unknown) => ((list as unknown[] | undefined) ?? []).map(Number);

export function extentsOf(tensor: Message, layout: unknown): Extents | undefined {
  const order = layouts[enumName("Layout", layout)];
  const shape = shapeOf(tensor);
  const data = tensor.data as Uint8Array | undefined;
  if (order === undefined || data === undefined || shape.length !== order.axes.length) return undefined;
  const bytes = shape.reduce((product, extent) => product * extent, sizeOf(tensor));
  if (bytes !== data.byteLength || bytes === 0) return undefined;
  const extents: Extents = { batch: 1, token: 1, head: 1, channel: 1 };
  order.axes.forEach((axis, i) => (extents[axis] = shape[i]));
  return extents;
}

/**
 * Returns parts in memory order, of at most `maxBytes` if possible. `wholeHeads` keeps all heads together in every
 * layout, for frequencies that differ by head.
 */
export function cutTensor(tensor: Message, layout: unknown, wholeHeads: boolean, maxBytes: number): Part[] | undefined {
  const extents = extentsOf(tensor, layout);
  if (extents === undefined) return undefined;
  const name = enumName("Layout", layout);
  const { axes } = layouts[name];
  const cuttable = wholeHeads && name === "LAYOUT_BHSD" ? 1 : layouts[name].cuttable;
  const shape = shapeOf(tensor);
  const step = shape.map((_, i) => shape.slice(i + 1).reduce((product, extent) => product * extent, sizeOf(tensor)));

  // Cuts along one axis: the outermost whose steps are small enough, or else the last that may be cut.
  let cut = 0;
  while (cut + 1 < cuttable && step[cut] > maxBytes) ++cut;
  const run = Math.max(1, Math.floor(maxBytes / step[cut]));
  const outer = shape.slice(0, cut).reduce((product, extent) => product * extent, 1);

  const parts: Part[] = [];
  let offset = 0;
  for (let index = 0; index < outer; ++index) {
    const ranges: Record<Axis, Range> = {
      batch: [0, extents.batch],
      token: [0, extents.token],
      head: [0, extents.head],
      channel: [0, extents.channel],
    };
    for (let i = cut - 1, rest = index; i >= 0; --i) {
      const at = rest % shape[i];
      rest = Math.floor(rest / shape[i]);
      ranges[axes[i]] = [at, at + 1];
    }
    for (let begin = 0; begin < shape[cut]; begin += run) {
      const end = Math.min(begin + run, shape[cut]);
      const bytes = (end - begin) * step[cut];
      const partShape = shape.map((extent, i) => (i < cut ? 1 : i === cut ? end - begin : extent));
      parts.push({ ranges: { ...ranges, [axes[cut]]: [begin, end] }, shape: partShape, offset, bytes });
      offset += bytes;
    }
  }
  return parts;
}

/** Returns whether ids may be [B, S] or [axes, S]: only the encoding shows whether it has several axes. */
export function needAxes(ids: Message | undefined, layout: unknown, extents: Extents): boolean {
  const shape = ids === undefined ? [] : shapeOf(ids);
  return enumName("Layout", layout) !== "LAYOUT_THD" && shape.length === 2 && shape[0] === extents.batch && extents.batch > 1;
}

/** The ids of a part's tokens, of [S], [B, S], [axes, S] or [axes, B, S]; [T] or [axes, T] if packed. */
export function cutIds(ids: Message, layout: unknown, extents: Extents, severalAxes: boolean, part: Part): Message | undefined {
  const packed = enumName("Layout", layout) === "LAYOUT_THD";
  const shape = shapeOf(ids);
  const rank = shape.length;
  // The rank and the first extent show whether ids have axes, except if needAxes().
  const withAxes = severalAxes || rank === (packed ? 2 : 3) || (rank === 2 && !packed && shape[0] !== extents.batch);
  const axes = withAxes && rank > 0 ? shape[0] : 1;
  const inner = shape.slice(withAxes ? 1 : 0);
  const perSequence = inner.length === 2 && !packed;
  const batch = perSequence ? extents.batch : 1;
  if (inner.at(-1) !== extents.token || inner.length > (packed ? 1 : 2) || (perSequence && inner[0] !== batch)) return undefined;

  const values = ids.values as number[] | undefined;
  const data = ids.data as Uint8Array | undefined;
  const size = values ? 1 : sizeOf(ids);
  const elements = values ?? data ?? [];
  if (size === 0 || elements.length !== axes * batch * extents.token * size) return undefined;
  const [rowBegin, rowEnd] = perSequence ? part.ranges.batch : [0, 1];
  const [begin, end] = part.ranges.token;
  // The ids are a matrix with axes * batch rows and a column for every token.
  const runs = [];
  for (let axis = 0; axis < axes; ++axis) {
    for (let row = axis * batch + rowBegin; row < axis * batch + rowEnd; ++row) {
      const first = row * extents.token;
      runs.push(elements.slice((first + begin) * size, (first + end) * size));
    }
  }
  const cut: Message = { dtype: ids.dtype, shape: [...(withAxes ? [axes] : []), ...(perSequence ? [rowEnd - rowBegin] : []), end - begin] };
  if (values) cut.values = (runs as number[][]).flat();
  else cut.data = Buffer.concat(runs as Uint8Array[]);
  return cut;
}

// Cuts a packed batch between any two tokens. The sequences that a part covers, wholly or partly, become its sequences,
// each with its own start.
function cutPacked(packed: Message, extents: Extents, part: Part): Message | undefined {
  const bounds = numbers(packed.cuSeqlens);
  const starts = numbers(packed.starts);
  const sequences = bounds.length - 1;
  const ascending = bounds.every((bound, i) => i === 0 || bounds[i - 1] <= bound);
  if (bounds[0] !== 0 || bounds.at(-1) !== extents.token || !ascending) return undefined;
  if (starts.length !== 0 && starts.length !== sequences) return undefined;
  const [tokenBegin, tokenEnd] = part.ranges.token;
  const cut = { cuSeqlens: [0], starts: [] as number[] };
  for (let i = 0; i < sequences; ++i) {
    const begin = Math.max(bounds[i], tokenBegin);
    const end = Math.min(bounds[i + 1], tokenEnd);
    if (begin >= end) continue;
    cut.cuSeqlens.push(end - tokenBegin);
    cut.starts.push((starts[i] ?? 0) + begin - bounds[i]);
  }
  return { packed: cut };
}

/** Returns the positions of a part's tokens. Missing positions stay missing: the server reports them. */
export function cutPositions(positions: Message | undefined, layout: unknown, extents: Extents, severalAxes: boolean, part: Part): Message | undefined {
  if (positions === undefined) return {};
  const later = (position: unknown) => Number(position) + part.ranges.token[0];
  if (positions.start !== undefined) return { start: later(positions.start) };
  if (positions.starts !== undefined) {
    const starts = numbers((positions.starts as Message).values);
    if (starts.length !== extents.batch) return undefined;
    return { starts: { values: starts.slice(...part.ranges.batch).map(later) } };
  }
  if (positions.ids !== undefined) {
    const ids = cutIds(positions.ids as Message, layout, extents, severalAxes, part);
    return ids && { ids };
  }
  if (positions.packed !== undefined) {
    if (enumName("Layout", layout) !== "LAYOUT_THD") return undefined;
    return cutPacked(positions.packed as Message, extents, part);
  }
  return {};
}
