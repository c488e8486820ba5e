import { inspect, type InspectOptions } from "node:util";

/** The error of every failed call. */
export class PosencError extends Error {
  override readonly name = "PosencError";
  /** gRPC's name of the status: "INVALID_ARGUMENT", "UNAVAILABLE". */
  readonly code: string;
  /** An ErrorReason of the contract, such as "FIELD_REQUIRED", or "". Programs can branch on the reason. */
  readonly reason: string;
  /** The field at fault in the contract's spelling, such as "rope.spec.rotary_dim", or "". */
  readonly field: string;
  /** Facts that belong to the reason, such as limitBytes. */
  readonly metadata: Record<string, string>;
  /** Every field that the server found wrong. */
  readonly violations: { field: string; description: string }[];
  /** The call's id, as in the server's log. */
  readonly requestId: string;

  constructor(message: string, { code, reason, field, metadata, violations, requestId, cause }: Facts) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    this.reason = reason ?? "";
    this.field = field ?? "";
    this.metadata = metadata ?? {};
    this.violations = violations ?? [];
    this.requestId = requestId ?? "";
  }

  /** Returns the text that console.log shows: the error with its facts, except empty ones. */
  [inspect.custom](_depth: number, options: InspectOptions): string {
    const { name: _, ...facts } = this;
    const entries = Object.entries(facts as object) as [string, object | string][];
    const known: [string, unknown][] = entries.filter(([, fact]) => Object.keys(fact).length > 0);
    if (this.cause !== undefined) known.push(["cause", this.cause]);
    return `${this.stack} ${inspect(Object.fromEntries(known), options)}`;
  }
}

type Facts = { code: string } & Partial<Omit<PosencError, "name" | "message" | "stack" | "code">>;

/** Renames the fields in the error of a table's stream to the unary request's fields: `table.rows` becomes `rows`. */
export function withoutTable(error: unknown): unknown {
  if (!(error instanceof PosencError)) return error;
  const text = JSON.stringify({ ...error, message: error.message }).replace(/(?<![\w.])table\.(?=\w)/g, "");
  const { message, ...facts } = JSON.parse(text) as Facts & { message: string };
  return new PosencError(message, { ...facts, cause: error.cause });
}

/** Returns an error that the client itself found, in the form of the server's errors. */
export function invalid(field: string, fact: string, reason = "FIELD_INVALID"): PosencError {
  return new PosencError(`${field}: ${fact}`, { code: "INVALID_ARGUMENT", reason, field, metadata: { field } });
}

/** Returns the error of an answer that does not fit the request. */
export function falseAnswer(fact: string, cause?: unknown): PosencError {
  return new PosencError(`the server's answer does not fit: ${fact}`, { code: "INTERNAL", cause });
}

/** Returns the result of `make`. If `make` throws, throws an error that names the option. */
export function optionOf<T>(option: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    throw error instanceof PosencError ? error : invalid(option, (error as Error).message);
  }
}

/** Throws if `given` is not an object. In JavaScript, callers can leave out this argument. */
export function checkObject(given: unknown, name: string): asserts given is object {
  if (typeof given === "object" && given !== null) return;
  throw invalid(name, `must be an object; is ${given === null ? "null" : typeof given}`);
}

/** Throws if `given` is not an object, or has other keys than `known`. */
export function checkKeys(given: unknown, known: readonly string[], name: string): asserts given is object {
  checkObject(given, name || "options");
  const unknown = Object.keys(given).find((key) => !known.includes(key));
  if (unknown === undefined) return;
  throw invalid(name ? `${name}.${unknown}` : unknown, `is not known; known: ${known.join(", ")}`, "FIELD_UNKNOWN");
}
