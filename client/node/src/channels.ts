// Connections to the server, and the token of every call.
import fs from "node:fs";
import path from "node:path";
import { Client as Connection, credentials, type ChannelCredentials, type ChannelOptions } from "@grpc/grpc-js";
import { invalid, PosencError } from "./errors";
import { version } from "./version";

/** Options of a client. Each has a default. */
export interface ClientOptions {
  /**
   * Milliseconds until a call of one message each way ends as DEADLINE_EXCEEDED; for a stream the longest time without
   * any progress. Infinity: no end. 60000.
   */
  timeoutMs?: number;
  /** Bytes of the largest message, either way. Default: 512 MiB, like the server's. */
  maxMessageBytes?: number;
  /**
   * Bytes above which applyRope and reposition go as a stream, in chunks, instead of one message. 8 MiB: grpc-js
   * copies a message several times, which costs less if it is small.
   */
  streamAboveBytes?: number;
  /** Connections for messages of 64 KiB and more, used in turn. 0: they share the one of small messages. Default: 4. */
  bulkChannels?: number;
  /** gRPC's service config, as JSON text. Default: the published one. */
  serviceConfig?: string;
  /** Requires TLS; true trusts the system's authorities. Default: false. */
  tls?: boolean | TlsOptions;
  /** Bearer token of every call. Never sent in the clear to another machine. */
  token?: string;
  /** A file that holds only the token. It is read again when it changes. */
  tokenFile?: string;
}

/** PEM files. */
export interface TlsOptions {
  /** Authorities of the server's certificate. Default: the system's. */
  caFile?: string;
  /** This client's own certificate, for servers that require one, and its key. Both or none. */
  certFile?: string;
  keyFile?: string;
  /** Name that the server's certificate must have. Default: the target's. */
  serverName?: string;
}

export const clientOptions = ["timeoutMs", "maxMessageBytes", "streamAboveBytes", "bulkChannels", "serviceConfig", "tls", "token", "tokenFile"];
const tlsOptions = ["caFile", "certFile", "keyFile", "serverName"];

/** Throws if these are no options, or if one is unknown. */
export function checkKeys(options: object, known: readonly string[], path = ""): void {
  if (typeof options !== "object" || options === null) throw invalid(path.slice(0, -1) || "options", `must be an object; is ${String(options)}`);
  for (const key of Object.keys(options)) {
    if (known.includes(key)) continue;
    throw invalid(path + key, `is not known; known: ${known.join(", ")}`, "FIELD_UNKNOWN");
  }
}

function checkJson(option: string, text: unknown): void {
  try {
    const config: unknown = JSON.parse(text as string);
    if (typeof config !== "object" || config === null) throw new Error(`is a ${typeof config}`);
  } catch (error) {
    throw invalid(option, `must be the JSON text of an object: ${(error as Error).message}`);
  }
}

function readPem(option: string, file: string): Buffer {
  try {
    return fs.readFileSync(file);
  } catch (error) {
    throw invalid(option, (error as Error).message);
  }
}

// For Debian, Fedora and similar systems, Alpine and macOS. Node's own list of authorities is the fallback: it lacks
// authorities that the system's owner added.
const systemAuthorities = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

function tlsCredentials(options: TlsOptions): ChannelCredentials {
  checkKeys(options, tlsOptions, "tls.");
  const { caFile, certFile, keyFile } = options;
  if ((certFile === undefined) !== (keyFile === undefined)) {
    throw invalid(certFile === undefined ? "tls.certFile" : "tls.keyFile", "is missing; certificate and key come together");
  }
  const system = process.env.SSL_CERT_FILE ?? systemAuthorities.find((file) => fs.existsSync(file));
  const authorities = caFile ?? system;
  try {
    return credentials.createSsl(
      authorities === undefined ? null : readPem("tls.caFile", authorities),
      keyFile === undefined ? null : readPem("tls.keyFile", keyFile),
      certFile === undefined ? null : readPem("tls.certFile", certFile),
    );
  } catch (error) {
    if (error instanceof Error && error.name === "PosencError") throw error;
    throw invalid("tls", (error as Error).message);
  }
}

// Refuses schemes that gRPC does not know, and impossible ports. grpc-js would only report an unknown name.
function checkTarget(target: string): void {
  const scheme = /^https?:\/\//.exec(target)?.[0];
  if (scheme !== undefined) throw invalid("target", `${target}: must be ${target.slice(scheme.length)}, without ${scheme}; the option tls is TLS`);
  if (target.startsWith("unix")) return;
  for (const [, port] of target.matchAll(/:(\d{5,})(?=,|$)/g)) {
    if (Number(port) > 65535) throw invalid("target", `${target}: port ${port}; must be 1 to 65535`);
  }
}

const isUnix = (target: string) => target.startsWith("unix:");

// Every address of a list, and no resolver but the system's: another one may put localhost anywhere.
function isLoopback(target: string): boolean {
  const addresses = target.replace(/^(dns:\/\/\/|dns:|ipv4:|ipv6:)/, "").split(",");
  return addresses.every((address) => /^(localhost|127(\.\d+){3}|\[::1\])(:\d+)?$|^::1$/.test(address));
}

/** Bearer tokens. The old token stays in use while a file cannot be read. */
class Token {
  private stamp = "";

  constructor(
    private token: string,
    private readonly file?: string,
  ) {
    if (file !== undefined) this.stamp = this.look();
    this.token = file === undefined ? checkToken("token", token) : checkToken("tokenFile", readPem("tokenFile", file).toString());
  }

  get(): string {
    if (this.file !== undefined && this.stamp !== this.look()) {
      try {
        this.token = checkToken("tokenFile", fs.readFileSync(this.file, "utf8"));
        this.stamp = this.look();
      } catch {
        // The next call tries again.
      }
    }
    return this.token;
  }

  private look(): string {
    const stat = fs.statSync(this.file!, { throwIfNoEntry: false });
    return stat === undefined ? "" : `${stat.ino} ${stat.mtimeMs} ${stat.size}`;
  }
}

function checkToken(option: string, text: string): string {
  const token = text.trim();
  if (!/^[\x21-\x7e]+$/.test(token)) throw invalid(option, "must hold one token, of visible characters");
  return token;
}

// The server may send this much ahead of our reading; HTTP/2's 64 KiB would stop it every few microseconds. 16 MiB are
// four of the server's chunks.
const flowControlWindow = 16 << 20;

export class Channels {
  private readonly credentials: ChannelCredentials;
  private readonly channelOptions: ChannelOptions;
  private readonly token?: Token;
  private smallChannel?: Connection;
  private onceChannel?: Connection;
  private readonly bulkChannels: Connection[] = [];
  private readonly mostBulkChannels: number;
  private turn = 0;
  private closed = false;

  constructor(
    readonly target: string,
    options: ClientOptions,
    maxMessageBytes: number,
  ) {
    if (typeof target !== "string" || target === "") throw invalid("target", "is missing; such as localhost:50051", "FIELD_REQUIRED");
    checkTarget(target);
    const withTls = options.tls !== undefined && options.tls !== false;
    const tlsWanted = typeof options.tls === "object" ? options.tls : {};
    this.credentials = withTls ? tlsCredentials(tlsWanted) : credentials.createInsecure();
    for (const option of ["token", "tokenFile"] as const) {
      if (options[option] !== undefined && typeof options[option] !== "string") throw invalid(option, "must be a string");
    }
    if (options.token !== undefined || options.tokenFile !== undefined) {
      const option = options.token === undefined ? "tokenFile" : "token";
      if (options.token !== undefined && options.tokenFile !== undefined) throw invalid("tokenFile", "excludes token");
      if (!withTls && !isUnix(target) && !isLoopback(target)) {
        throw invalid(option, `would be sent in the clear to ${target}; must have TLS`);
      }
      this.token = new Token(options.token ?? "", options.tokenFile);
    }
    const { bulkChannels = 4, serviceConfig } = options;
    if (!Number.isInteger(bulkChannels) || bulkChannels < 0) throw invalid("bulkChannels", "must be a whole number, 0 or more");
    if (serviceConfig !== undefined) checkJson("serviceConfig", serviceConfig);
    this.mostBulkChannels = bulkChannels;
    this.channelOptions = {
      "grpc.service_config": serviceConfig ?? fs.readFileSync(path.join(__dirname, "service_config.json"), "utf8"),
      "grpc.max_send_message_length": maxMessageBytes,
      "grpc.max_receive_message_length": maxMessageBytes,
      "grpc.primary_user_agent": `posenc-node/${version}`,
      "grpc-node.flow_control_window": flowControlWindow,
      // A proxy of the environment would also be used for localhost, and see the token.
      ...(this.token === undefined || withTls ? {} : { "grpc.enable_http_proxy": 0 }),
      // Channels with equal options would share one connection.
      "grpc.use_local_subchannel_pool": 1,
      ...(tlsWanted.serverName === undefined
        ? {}
        : { "grpc.ssl_target_name_override": tlsWanted.serverName, "grpc.default_authority": tlsWanted.serverName }),
    };
  }

  bearer(): string | undefined {
    return this.token?.get();
  }

  small(): Connection {
    this.checkOpen();
    return (this.smallChannel ??= this.open());
  }

  /** For calls that must not be sent a second time: in gRPC, retries are an option of the channel. */
  once(): Connection {
    this.checkOpen();
    return (this.onceChannel ??= this.open({ "grpc.enable_retries": 0 }));
  }

  bulk(): Connection {
    this.checkOpen();
    if (this.mostBulkChannels === 0) return this.small();
    const i = this.turn++ % this.mostBulkChannels;
    return (this.bulkChannels[i] ??= this.open());
  }

  close(): void {
    this.closed = true;
    for (const channel of [this.smallChannel, this.onceChannel, ...this.bulkChannels]) channel?.close();
  }

  private checkOpen(): void {
    if (this.closed) throw new PosencError("the client is closed; make another one", { code: "CANCELLED" });
  }

  private open(more: ChannelOptions = {}): Connection {
    return new Connection(this.target, this.credentials, { ...this.channelOptions, ...more });
  }
}
