// Client of posenc.
//
//   const rope = await posenc.connect("localhost:50051").rope({ configFile: "config.json" });
//   const { q, k } = await rope.apply({ q: tensor(qs, [1, 1024, 32, 128]), k: tensor(ks, [1, 1024, 8, 128]), start: 0, layout: "bshd" });
import { Client } from "./client";
import type { ClientOptions } from "./connection";

export type * from "./arguments";
export type { CallOptions } from "./calls";
export { Client, Rope, type Rotated } from "./client";
export type { ClientOptions, TlsOptions } from "./connection";
export { version } from "./contract";
export { PosencError } from "./errors";
export { local, LocalClient, type LocalOptions } from "./local";
export type * as messages from "./messages";
export { type RegionOptions, SharedRegion, SharedTensor } from "./shared";
export type { Chunks } from "./streams";
export { type Dtype, type Elements, Tensor, tensor, type TensorMessage } from "./tensor";

/** Makes a client of the servers at `target`: "localhost:50051", "dns:///posenc:50051", "unix:/run/posenc". */
export function connect(target: string, options?: ClientOptions): Client {
  return new Client(target, options);
}

/**
 * Makes a client with target, TLS and token from environment variables: POSENC_SERVER, POSENC_TLS (1), POSENC_TLS_CA,
 * POSENC_TLS_CERT, POSENC_TLS_KEY, POSENC_TLS_SERVER_NAME, POSENC_TOKEN, POSENC_TOKEN_FILE.
 */
export function fromEnv(options: ClientOptions = {}): Client {
  const set = (name: string) => process.env[`POSENC_${name}`] || undefined;
  const tls = {
    caFile: set("TLS_CA"),
    certFile: set("TLS_CERT"),
    keyFile: set("TLS_KEY"),
    serverName: set("TLS_SERVER_NAME"),
  };
  const withTls = set("TLS") === "1" || Object.values(tls).some((value) => value !== undefined);
  const fromHere = { tls: withTls ? tls : undefined, token: set("TOKEN"), tokenFile: set("TOKEN_FILE") };
  return new Client(set("SERVER") ?? "localhost:50051", { ...fromHere, ...options });
}
