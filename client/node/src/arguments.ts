// Arguments of calls: the contract's requests, with shorter forms of positions and encodings.
import { readFile } from "node:fs/promises";
import { checkObject, invalid } from "./errors";
import type * as messages from "./messages";
import { type Fields, snake, typeNamed } from "./schema";
import type { SharedTensor } from "./shared";
import { type Elements, type Tensor, tensor, type TensorMessage } from "./tensor";

/**
 * A rotary encoding: a preset's name, a model's config.json as a path or as its content, or a specification. An object
 * with preset, configFile, config or configJson may also have the fields profile, profileVersion, part, layerType,
 * layerIndex, sequenceLength and headDim of RopeSource.
 */
export type RopeArgument =
  | string
  | messages.RopeSpec
  | messages.RopeSource
  | (Omit<messages.RopeSource, "configJson"> & ({ configFile: string } | { config: object }));

/** Position ids: numbers, or a tensor if their shape has several axes ([B, S], [axes, S]). */
export type Ids = Tensor | TensorMessage | readonly number[] | Int32Array | BigInt64Array | Float32Array | Float64Array;

/** Positions of tokens: exactly one of these fields. */
export interface PositionArguments {
  /** Token t of every sequence has the position start + t. */
  start?: number;
  /** A start for each sequence of the batch. */
  starts?: readonly number[];
  /** A position for each token. */
  ids?: Ids;
  /** Layout thd: several sequences, one after the other. */
  packed?: messages.PackedSequences;
  /** Any form of positions as a message, such as the `positions` that buildPositions returns. */
  positions?: messages.Positions;
}

/** Keys move by `shift`, by a shift for each token (`shifts`), or from `oldPositions` to `newPositions`. */
export interface MovementArguments {
  shift?: number;
  shifts?: Ids;
  oldPositions?: PositionArguments;
  newPositions?: PositionArguments;
  /** Any form of movement as a message. */
  movement?: messages.Movement;
}

/** Memory for a result, which may be the memory of the input. A SharedTensor is memory in a region. */
export type Output = Elements | SharedTensor;
/** Memory for a table: cos and sin, or the single table of an absolute encoding or of the layout "complex". */
export type TableOut = { cos?: Output; sin?: Output; table?: Output };

type Positioned<Request> = Omit<Request, "positions" | "rope"> & PositionArguments;
type Compared<Request> = Omit<Request, "rope" | "compareWith"> & { rope: RopeArgument; compareWith?: RopeArgument };

export type ResolveRopeArguments = Compared<messages.ResolveRopeRequest>;
export type AnalyzeRopeArguments = Compared<messages.AnalyzeRopeRequest>;
export type ApplyRopeArguments = Positioned<messages.ApplyRopeRequest> & {
  rope: RopeArgument;
  out?: { q?: Output; k?: Output };
};
/** `oldRope` is the encoding that rotated k. `newRope` is the new encoding of k, by default the same as `oldRope`. */
export type RepositionArguments = Omit<messages.RepositionRequest, "oldRope" | "newRope" | "movement"> &
  MovementArguments & { oldRope: RopeArgument; newRope?: RopeArgument; out?: Output };
export type BuildTableArguments = Positioned<messages.BuildTableRequest> & { rope?: RopeArgument; out?: TableOut };
export type BuildTableStreamArguments = Omit<BuildTableArguments, "out"> & { rowsPerMessage?: number };
export type AddEncodingArguments = Positioned<messages.AddEncodingRequest> & { out?: Output };
export type ScoreRelativeArguments = messages.ScoreRelativeRequest & { out?: Output };
export type ConvertPairingArguments = messages.ConvertPairingRequest & { out?: Output };

/** Returns the arguments, with a RopeSource of the contract in place of each encoding that `names` lists. */
export async function withRopes(given: object, ...names: string[]): Promise<Fields> {
  checkObject(given, "arguments");
  const result: Fields = { ...given };
  for (const name of names) result[name] = await ropeSource(result[name], snake(name));
  return result;
}

const ropeSources = ["preset", "spec", "configJson", "configFile", "config"];

/** Converts an encoding to the contract's RopeSource. Reads a config file. */
export async function ropeSource(rope: unknown, field = "rope"): Promise<object | undefined> {
  if (rope === undefined || rope === null) return undefined;
  if (typeof rope === "string") return { preset: rope };
  if (typeof rope !== "object") {
    throw invalid(field, "must be a preset's name, or an object with configFile, config, preset or spec");
  }
  const { fields } = typeNamed("posenc.v1.RopeSource");
  const keys = Object.keys(rope);
  if (!keys.some((key) => ropeSources.includes(key)) && !keys.every((key) => key in fields)) return { spec: rope };
  const { configFile, config, ...source } = rope as { configFile?: string; config?: object };
  if (config !== undefined) return { ...source, configJson: JSON.stringify(config) };
  if (configFile === undefined) return source;
  try {
    return { ...source, configJson: await readFile(configFile, "utf8") };
  } catch (error) {
    throw invalid(`${field}.config_file`, (error as Error).message);
  }
}

// Converts numbers to a tensor of float64, which represents every integer position exactly.
function idsTensor(ids: unknown, field: string): unknown {
  if (!Array.isArray(ids)) return ArrayBuffer.isView(ids) ? tensor(ids as Elements) : ids;
  // Float64Array.from would convert null to 0.
  const wrong = ids.findIndex((id) => typeof id !== "number");
  if (wrong >= 0) throw invalid(`${field}[${wrong}]`, "must be a number");
  return tensor(Float64Array.from(ids as number[]));
}

/** Returns `message` if it is given, or `fields` if one of them is set. Throws if both are given. */
function messageOr(field: string, message: unknown, fields: Fields): Fields | undefined {
  const set = Object.keys(fields).find((key) => fields[key] !== undefined && fields[key] !== null);
  if (message === undefined || message === null) return set === undefined ? undefined : fields;
  if (set !== undefined) throw invalid(field, `is set beside ${set}; must be one`);
  return { ...message };
}

function positionsOf({ positions, ...fields }: Fields, field: string): Fields | undefined {
  const message = messageOr(field, positions, fields);
  if (Array.isArray(message?.starts)) message.starts = { values: message.starts as unknown[] };
  if (message?.ids) message.ids = idsTensor(message.ids, `${field}.ids`);
  return message;
}

/** Returns the arguments with positions in the contract's form. */
export function withPositions(given: object): Fields {
  checkObject(given, "arguments");
  const { start, starts, ids, packed, positions, ...rest } = given as Fields;
  return { ...rest, positions: positionsOf({ start, starts, ids, packed, positions }, "positions") };
}

/** Returns the arguments with the movement in the contract's form. */
export function withMovement(given: object): Fields {
  checkObject(given, "arguments");
  const { shift, shifts, oldPositions, newPositions, movement, ...rest } = given as Fields;
  const places = (short: unknown, field: string) => (short ? positionsOf(short as Fields, field) : short);
  const fields = {
    shift,
    shifts: idsTensor(shifts, "movement.shifts"),
    oldPositions: places(oldPositions, "movement.old_positions"),
    newPositions: places(newPositions, "movement.new_positions"),
  };
  return { ...rest, movement: messageOr("movement", movement, fields) };
}
