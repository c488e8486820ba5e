import { Metadata, type ServiceError, status as codes } from "@grpc/grpc-js";
import { PosencError } from "./errors";
import { typeNamed } from "./schema";

// The fields of the messages in posenc/rpc/status.proto that this client reads.
interface ErrorInfo {
  reason: string;
  metadata: Record<string, string>;
}
interface BadRequest {
  fieldViolations: { field: string; description: string }[];
}

// Decodes the google.rpc.Status in the trailers. No package for Node does this.
function detailsOf(bytes: Uint8Array) {
  const decode = (name: string, message: Uint8Array): unknown => typeNamed(`posenc.rpc.${name}`).decode(message);
  const { details } = decode("Status", bytes) as { details: { type_url: string; value: Uint8Array }[] };
  const detail = (name: string) => {
    const value = details.find(({ type_url: type }) => type === `type.googleapis.com/google.rpc.${name}`)?.value;
    return value && decode(name, value);
  };
  const { reason = "", metadata = {} } = (detail("ErrorInfo") ?? {}) as Partial<ErrorInfo>;
  const { fieldViolations = [] } = (detail("BadRequest") ?? {}) as Partial<BadRequest>;
  const violations = fieldViolations.map(({ field, description }) => ({ field, description }));
  return { reason: reason.replace(/^ERROR_REASON_/, ""), field: metadata.field, metadata: { ...metadata }, violations };
}

/** Converts an error of grpc-js to PosencError; other values do not change. */
export function fromGrpc(error: unknown, target: string, requestId: string): unknown {
  if (error instanceof PosencError || !(error instanceof Error) || !("code" in error && "details" in error))
    return error;
  const { code, details, metadata } = error as ServiceError;
  const [bytes] = metadata instanceof Metadata ? metadata.get("grpc-status-details-bin") : [];
  let facts: Partial<ReturnType<typeof detailsOf>> = {};
  try {
    if (bytes instanceof Buffer) facts = detailsOf(bytes);
  } catch {
    // Unreadable details are ignored, because code and text of the error say enough.
  }
  let text = details;
  if (!facts.reason && (code === codes.UNAVAILABLE || code === codes.DEADLINE_EXCEEDED)) {
    // No server answered in time, so the text gets the target.
    text = text.replace(/\s*Resolution note:\s*$/, "");
    if (!text.includes(target)) text += `; the target is ${target}`;
    if (code === codes.DEADLINE_EXCEEDED)
      text += "; the timeout is over: is the server there, or must the timeout be longer?";
    else if (!target.startsWith("unix:"))
      text +=
        "; is the server there, does it speak TLS or plaintext as this client does, and do both trust the certificates?";
  }
  return new PosencError(text, { ...facts, code: codes[code] ?? String(code), requestId });
}

/** Returns whether a message was over a limit of the server, or of a proxy before the server. */
export function isTooLarge(error: unknown): error is PosencError {
  return error instanceof PosencError && error.code === "RESOURCE_EXHAUSTED" && error.reason !== "OVERLOADED";
}
