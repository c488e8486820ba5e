// Arguments of calls: the contract's requests, with shorter forms of positions and encodings.
import { checkKeys } from "./channels";
import { invalid } from "./errors";
import type {
  AddEncodingRequest,
  AnalyzeRopeRequest,
  ApplyRopeRequest,
  BuildTableRequest,
  ConvertPairingRequest,
  Movement,
  PackedSequences,
  Positions,
  RepositionRequest,
  ResolveRopeRequest,
  ScoreRelativeRequest,
} from "./messages";
import type { SharedTensor } from "./shared";
import type { Rope } from "./source";
import type { TableOut } from "./tables";
import { type Elements, type TensorMessage, Tensor, tensor } from "./tensor";

/** Position ids: numbers, or a tensor if they have a shape of their own ([B, S], [axes, S]). */
export type Ids = Tensor | TensorMessage | readonly number[] | Int32Array | BigInt64Array | Float32Array | Float64Array;

/** Positions of tokens: exactly one of these. */
export interface PositionArguments {
  /** Token t of every sequence stands at start + t. */
  start?: number;
  /** A start for each sequence of the batch. */
  starts?: readonly number[];
  /** One position per token. */
  ids?: Ids;
  /** Layout thd: several sequences, one after the other. */
  packed?: PackedSequences;
  /** Any of these as a message, such as the `positions` that buildPositions answers. */
  positions?: Positions;
}

type Ask<Request, Special extends keyof Request> = Omit<Request, Special>;

export interface ApplyRopeArguments extends Ask<ApplyRopeRequest, "rope" | "positions">, PositionArguments {
  rope: Rope;
  /** Memory for the results, which may be the inputs' own; results in a region are its SharedTensors. */
  out?: { q?: Elements | SharedTensor; k?: Elements | SharedTensor };
}

export interface RepositionArguments extends Ask<RepositionRequest, "oldRope" | "newRope" | "movement"> {
  /** The encoding that k was rotated with. */
  oldRope: Rope;
  /** The encoding that k shall have; by default the same. */
  newRope?: Rope;
  /** Moves every token by this. Or use `shifts`, or `newPositions` with `oldPositions`. */
  shift?: number;
  /** Moves each token by its own shift. */
  shifts?: Ids;
  oldPositions?: PositionArguments;
  newPositions?: PositionArguments;
  /** Any of these as a message. */
  movement?: Movement;
  out?: Elements | SharedTensor;
}

export interface BuildTableArguments extends Ask<BuildTableRequest, "rope" | "positions">, PositionArguments {
  rope?: Rope;
  out?: TableOut;
}

export interface AddEncodingArguments extends Ask<AddEncodingRequest, "positions">, PositionArguments {
  out?: Elements | SharedTensor;
}

export interface ScoreRelativeArguments extends ScoreRelativeRequest {
  out?: Elements | SharedTensor;
}

export interface ConvertPairingArguments extends ConvertPairingRequest {
  out?: Elements | SharedTensor;
}

export interface ResolveRopeArguments extends Ask<ResolveRopeRequest, "rope" | "compareWith"> {
  rope: Rope;
  compareWith?: Rope;
}

export interface AnalyzeRopeArguments extends Ask<AnalyzeRopeRequest, "rope" | "compareWith"> {
  rope: Rope;
  compareWith?: Rope;
}

const positionKeys = ["start", "starts", "ids", "packed", "positions"];
const movementKeys = ["shift", "shifts", "oldPositions", "newPositions", "movement"];

/** Separates these keys from the other arguments. */
function split(given: object, keys: readonly string[]): [picked: Record<string, unknown>, rest: Record<string, unknown>] {
  const picked: Record<string, unknown> = {};
  const rest: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(given)) {
    if (value !== undefined && value !== null) (keys.includes(key) ? picked : rest)[key] = value;
  }
  return [picked, rest];
}

// Doubles hold every position exactly, whole or fractional.
function idsTensor(ids: unknown, field: string): unknown {
  if (Array.isArray(ids)) {
    // Float64Array.from would convert null to 0.
    const wrong = ids.findIndex((id) => typeof id !== "number");
    if (wrong >= 0) throw invalid(`${field}[${wrong}]`, "must be a number");
    return tensor(Float64Array.from(ids));
  }
  return ArrayBuffer.isView(ids) ? tensor(ids as Elements) : ids;
}

function positionsOf(given: Record<string, unknown>, field: string): object | undefined {
  const { positions, ...short } = given;
  if (positions !== undefined && Object.keys(short).length > 0) throw invalid(field, `is set beside ${Object.keys(short)[0]}; must be one`);
  const message = { ...((positions as object | undefined) ?? short) } as Record<string, unknown>;
  if (positions === undefined && Object.keys(message).length === 0) return undefined;
  if (Array.isArray(message.starts)) message.starts = { values: message.starts };
  if (message.ids !== undefined) message.ids = idsTensor(message.ids, `${field}.ids`);
  return message;
}

/** Returns the arguments with the contract's `positions`. */
export function withPositions(given: object): Record<string, unknown> {
  const [short, rest] = split(given, positionKeys);
  return { ...rest, positions: positionsOf(short, "positions") };
}

/** Returns the arguments with the contract's `movement`. */
export function withMovement(given: object): Record<string, unknown> {
  const [short, rest] = split(given, movementKeys);
  const { movement, ...fields } = short;
  if (movement !== undefined && Object.keys(fields).length > 0) throw invalid("movement", `is set beside ${Object.keys(fields)[0]}; must be one`);
  if (movement !== undefined || Object.keys(fields).length === 0) return { ...rest, movement };
  for (const key of ["oldPositions", "newPositions"]) {
    if (fields[key] === undefined) continue;
    checkKeys(fields[key] as object, positionKeys, `${key}.`);
    fields[key] = positionsOf(fields[key] as Record<string, unknown>, key);
  }
  if (fields.shifts !== undefined) fields.shifts = idsTensor(fields.shifts, "movement.shifts");
  return { ...rest, movement: fields };
}
