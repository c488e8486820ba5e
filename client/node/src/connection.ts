// The connection to the server: its options, TLS and bearer tokens.
import fs from "node:fs";
import { type ChannelCredentials, type ChannelOptions, Client as Connection, credentials } from "@grpc/grpc-js";
import { serviceConfig, version } from "./contract";
import { checkKeys, invalid, optionOf } from "./errors";

/** Options of a client. Each has a default. */
export interface ClientOptions {
  /**
   * Milliseconds until a unary call ends with DEADLINE_EXCEEDED. For a stream: the longest time without progress.
   * Infinity: no limit. Default: 60000.
   */
  timeoutMs?: number;
  /** Maximum size of a message in bytes, in both directions. Default: 512 MiB, which is also the server's default. */
  maxMessageBytes?: number;
  /**
   * Size in bytes above which applyRope and reposition use a stream instead of one message. Default: 8 MiB. grpc-js
   * copies a message several times, and small messages make these copies cheaper.
   */
  streamAboveBytes?: number;
  /** Requires TLS; true trusts the system's certificate authorities. Default: false. */
  tls?: boolean | TlsOptions;
  /** The bearer token of every call. A token is never sent to another machine without TLS. */
  token?: string;
  /** A file that contains only the token. The file is read again for each call. */
  tokenFile?: string;
}

/** Options of TLS. The files are PEM files. */
export interface TlsOptions {
  /** Certificate authorities that the client trusts. Default: the system's. */
  caFile?: string;
  /** The client's own certificate, for servers that require it. `keyFile` is its key; give both or neither. */
  certFile?: string;
  keyFile?: string;
  /** The name that the server's certificate must have. Default: the target's host name. */
  serverName?: string;
}

// The largest message of protobuf: 2 GiB - 1.
const maxProtoBytes = 2 ** 31 - 1;

// gRPC's default limit. Messages of streams never exceed this limit.
const smallestReceiveBytes = 4 << 20;

// Number of bytes that the server may send before the client reads them. HTTP/2's default of 64 KiB would stop the
// server every few microseconds. 16 MiB are four of the server's chunks.
const flowControlWindow = 16 << 20;

export function checkNumber(option: string, value: unknown): number {
  if (typeof value !== "number" || Number.isNaN(value)) throw invalid(option, "must be a number");
  return value;
}

export type Channel = ReturnType<typeof openChannel>;

/** Makes the client's connections, which connect at their first call. */
export function openChannel(target: string, options: ClientOptions) {
  const { timeoutMs = 60_000, maxMessageBytes = 512 << 20, streamAboveBytes = 8 << 20, ...others } = options ?? {};
  const numbers = { timeoutMs, maxMessageBytes, streamAboveBytes };
  checkKeys(options, [...Object.keys(numbers), "tls", "token", "tokenFile"], "");
  for (const [option, value] of Object.entries(numbers)) checkNumber(option, value);
  const { tls = false, token: text, tokenFile } = others;
  checkTarget(target);
  const tlsOptions = typeof tls === "boolean" ? {} : tls;
  const channel = tls === false ? credentials.createInsecure() : tlsCredentials(tlsOptions);
  const token = tokenSource(text, tokenFile);
  const isClear = token !== undefined && tls === false;
  if (isClear && !isLocal(target)) {
    throw invalid(tokenFile ? "tokenFile" : "token", `would be sent in the clear to ${target}; must have TLS`);
  }
  const { serverName } = tlsOptions;
  const largest = Math.min(maxMessageBytes, maxProtoBytes);
  const channelOptions: ChannelOptions = {
    "grpc.service_config": serviceConfig,
    "grpc.max_send_message_length": largest,
    "grpc.max_receive_message_length": Math.max(largest, smallestReceiveBytes),
    "grpc.primary_user_agent": `posenc-node/${version}`,
    "grpc-node.flow_control_window": flowControlWindow,
    // grpc-js would use a proxy from the environment also for localhost, and the proxy could read the token.
    ...(isClear && { "grpc.enable_http_proxy": 0 }),
    ...(serverName && { "grpc.ssl_target_name_override": serverName, "grpc.default_authority": serverName }),
  };
  return {
    timeoutMs,
    maxMessageBytes: largest,
    streamAboveBytes: Math.min(streamAboveBytes, largest),
    token,
    retrying: new Connection(target, channel, channelOptions),
    /** For requests that must not be sent a second time. In gRPC, retries are an option of the connection. */
    once: new Connection(target, channel, { ...channelOptions, "grpc.enable_retries": 0 }),
  };
}

// Refuses targets that grpc-js would report only as unknown names.
function checkTarget(target: unknown): void {
  if (typeof target !== "string" || target === "") {
    throw invalid("target", "is missing; such as localhost:50051", "FIELD_REQUIRED");
  }
  if (/^https?:/.test(target)) throw invalid("target", `${target}: must have no http; the option tls is TLS`);
}

// Returns whether all addresses are local. Targets that name a DNS server are not local, because that DNS server could
// resolve localhost to another machine.
function isLocal(target: string): boolean {
  const addresses = target.replace(/^(dns:\/\/\/|dns:|ipv4:|ipv6:)/, "").split(",");
  const isLoopback = (address: string) => /^(localhost|127(\.\d+){3}|\[::1\])(:\d+)?$|^::1$/.test(address);
  return target.startsWith("unix:") || addresses.every(isLoopback);
}

// Files of certificate authorities on Debian, on Fedora and similar systems, and on Alpine and macOS. Node's own list
// is only the fallback, because it lacks authorities that the system's owner added.
const systemAuthorities = [
  "/etc/ssl/certs/ca-certificates.crt",
  "/etc/pki/tls/certs/ca-bundle.crt",
  "/etc/ssl/cert.pem",
];

function tlsCredentials(options: TlsOptions): ChannelCredentials {
  checkKeys(options, ["caFile", "certFile", "keyFile", "serverName"], "tls");
  const { caFile, certFile, keyFile } = options;
  if (!certFile !== !keyFile) {
    throw invalid(certFile ? "tls.keyFile" : "tls.certFile", "is missing; certificate and key come together");
  }
  const authorities = caFile ?? process.env.SSL_CERT_FILE ?? systemAuthorities.find((file) => fs.existsSync(file));
  const pem = (option: string, file?: string) => (file ? optionOf(`tls.${option}`, () => fs.readFileSync(file)) : null);
  const [ca, key, cert] = [pem("caFile", authorities), pem("keyFile", keyFile), pem("certFile", certFile)];
  return optionOf("tls", () => credentials.createSsl(ca, key, cert));
}

/** Returns a function that returns the token. The function reads a token file for each call, because tokens expire. */
function tokenSource(token?: string, tokenFile?: string): (() => string) | undefined {
  if (token !== undefined && tokenFile !== undefined) throw invalid("tokenFile", "excludes token");
  if (token !== undefined) {
    const only = oneToken("token", token);
    return () => only;
  }
  if (tokenFile === undefined) return undefined;
  const read = () => oneToken("tokenFile", fs.readFileSync(tokenFile, "utf8"));
  let known = optionOf("tokenFile", read);
  return () => {
    try {
      known = read();
    } catch {
      // While the file cannot be read, the old token is used. The next call tries to read the file again.
    }
    return known;
  };
}

function oneToken(option: string, text: unknown): string {
  const token = typeof text === "string" ? text.trim() : "";
  if (!/^[\x21-\x7e]+$/.test(token)) throw invalid(option, "must hold one token, of visible characters");
  return token;
}
