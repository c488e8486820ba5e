import { Metadata, type ServiceError, status as codes } from "@grpc/grpc-js";
import { PosencError, type PosencErrorFields } from "./errors";
import { typeNamed } from "./schema";

const detailTypes = "type.googleapis.com/google.rpc.";

// The parts of posenc/rpc/status.proto's messages that are read.
interface Status {
  details: { type_url: string; value: Uint8Array }[];
}
interface ErrorInfo {
  reason: string;
  metadata: Record<string, string>;
}
interface BadRequest {
  fieldViolations: { field: string; description: string }[];
}

function decode<T>(name: string, bytes: Uint8Array): T {
  return typeNamed(`posenc.rpc.${name}`).decode(bytes) as unknown as T;
}

// No package for Node decodes google.rpc.Status, which is in the trailers.
function detailsOf(metadata: Metadata): Partial<PosencErrorFields> {
  const [bytes] = metadata.get("grpc-status-details-bin");
  if (!Buffer.isBuffer(bytes)) return {};
  const fields: Partial<PosencErrorFields> = {};
  try {
    read(bytes, fields);
  } catch {
    // Unreadable details are ignored: the error itself says more.
  }
  return fields;
}

function read(bytes: Uint8Array, fields: Partial<PosencErrorFields>): void {
  for (const detail of decode<Status>("Status", bytes).details) {
    if (detail.type_url === `${detailTypes}ErrorInfo`) {
      const info = decode<ErrorInfo>("ErrorInfo", detail.value);
      fields.reason = info.reason.replace(/^ERROR_REASON_/, "");
      fields.metadata = { ...info.metadata };
      fields.field = info.metadata.field;
    } else if (detail.type_url === `${detailTypes}BadRequest`) {
      const { fieldViolations } = decode<BadRequest>("BadRequest", detail.value);
      fields.violations = fieldViolations.map(({ field, description }) => ({ field, description }));
    }
  }
}

/** Converts an error of grpc-js to PosencError; other values do not change. */
export function fromGrpc(error: unknown, target: string, requestId: string): unknown {
  if (error instanceof PosencError || !(error instanceof Error) || !("code" in error) || !("details" in error)) return error;
  const { code, details, metadata } = error as ServiceError;
  let text = details;
  const fields = metadata instanceof Metadata ? detailsOf(metadata) : {};
  // No server answered, or it was too slow: name the target.
  const silent = code === codes.UNAVAILABLE || code === codes.DEADLINE_EXCEEDED;
  if (silent && !fields.reason) text = text.replace(/\s*Resolution note:\s*$/, "");
  if (silent && !fields.reason && !text.includes(target)) text += `; the target is ${target}`;
  return new PosencError(text, { ...fields, code: codes[code] ?? String(code), requestId });
}
