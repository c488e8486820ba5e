// The tensors of a table, as far as a request tells them.
import { dtypeName, type Fields } from "./schema";
import type { Described } from "./tensor";

const complex = 4; // TABLE_LAYOUT_COMPLEX

const at = (message: unknown, ...path: string[]) =>
  path.reduce((value, key) => (value as Fields | undefined)?.[key], message);
const extent = (message: unknown, ...path: string[]) => Number(at(message, ...path) ?? 0);
const last = (values: unknown) => Number((values as unknown[] | undefined)?.at(-1) ?? 0);

function rowsOf({ positions, rows, absolute }: Fields): number {
  // The last extent of ids counts tokens; the others are axes.
  const counted = last(at(positions, "ids", "shape")) || last(at(positions, "packed", "cuSeqlens"));
  const grid = at(absolute, "sincosGrid");
  if (counted > 0 || grid === undefined) return counted || Number(rows ?? 0);
  // A grid has a row for every cell, after the rows of special tokens.
  const extents = (at(grid, "extents") ?? []) as number[];
  return extents.reduce((product, each) => product * each, 1) + extent(grid, "leadingZeroRows");
}

function widthOf({ rope, absolute, layout }: Fields): number[] {
  const rotary = extent(rope, "spec", "rotaryDim");
  if (layout === complex) return [rotary / 2, 2];
  if (rope !== undefined) return [Number(layout ?? 0) > 1 ? rotary : rotary / 2]; // duplicated or repeated, or half
  const dims = ["sinusoidal", "sincosGrid", "timestep"].map((name) => extent(absolute, name, "dim"));
  const fourier = 2 * last(at(absolute, "fourierFeatures", "frequencies", "shape"));
  return [Math.max(...dims, fourier, last(at(absolute, "learned", "table", "shape")))];
}

/**
 * The tensors of a BuildTableRequest's answer by their names. They are undefined if only the server can describe them:
 * for presets, configurations, and requests that it will refuse.
 */
export function describeTable(request: Fields): Record<string, Described | undefined> {
  const heads = extent(request, "rope", "spec", "explicitFrequencies", "heads");
  const shape = [...(heads > 0 ? [heads] : []), rowsOf(request), ...widthOf(request)];
  const isKnown = shape.every((each) => Number.isSafeInteger(each) && each > 0);
  const described = isKnown ? { dtype: dtypeName(Number(request.dtype ?? 0) || 1), shape } : undefined; // float32 if unset
  const isOne = request.rope === undefined || request.layout === complex;
  return isOne ? { table: described } : { cos: described, sin: described };
}

/** The axis of the rows in a table of this shape. Heads may come before it. */
export function rowAxisOf({ layout }: Fields, shape: readonly number[]): number {
  return shape.length - (layout === complex ? 3 : 2);
}
