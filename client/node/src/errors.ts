export interface PosencErrorFields {
  code: string;
  reason?: string;
  field?: string;
  metadata?: Record<string, string>;
  violations?: { field: string; description: string }[];
  requestId?: string;
  cause?: unknown;
}

/** The error of every failed call. */
export class PosencError extends Error {
  /** gRPC's name of the status: "INVALID_ARGUMENT", "UNAVAILABLE". */
  readonly code: string;
  /** An ErrorReason of the contract, such as "FIELD_REQUIRED": branch on it. "" if the error has none. */
  readonly reason: string;
  /** The field at fault in the contract's spelling, such as "rope.spec.rotary_dim", or "". */
  readonly field: string;
  /** Facts of the reason, such as limitBytes. */
  readonly metadata: Record<string, string>;
  /** Every field that the server found wrong. */
  readonly violations: { field: string; description: string }[];
  /** The call's id, as in the server's log. */
  readonly requestId: string;

  constructor(message: string, fields: PosencErrorFields) {
    super(message, fields.cause === undefined ? undefined : { cause: fields.cause });
    this.name = "PosencError";
    this.code = fields.code;
    this.reason = fields.reason ?? "";
    this.field = fields.field ?? "";
    this.metadata = fields.metadata ?? {};
    this.violations = fields.violations ?? [];
    this.requestId = fields.requestId ?? "";
  }
}

/** Returns the same error with fields relative to the message at `path`: `table.rows` becomes `rows`. */
export function outside(path: string, error: unknown): unknown {
  if (!(error instanceof PosencError) || !error.field.startsWith(`${path}.`)) return error;
  const short = (text: string) => ` ${text}`.replaceAll(` ${path}.`, " ").slice(1);
  const { code, reason, requestId, cause } = error;
  const field = short(error.field);
  const metadata = { ...error.metadata, field };
  const violations = error.violations.map((each) => ({ ...each, field: short(each.field) }));
  return new PosencError(short(error.message), { code, reason, field, metadata, violations, requestId, cause });
}

/** Returns an error of the client itself, in the form of the server's. */
export function invalid(field: string, fact: string, reason = "FIELD_INVALID"): PosencError {
  return new PosencError(`${field}: ${fact}`, { code: "INVALID_ARGUMENT", reason, field, metadata: { field } });
}
