// Servers for tests: a posencd, or a fake server whose answers a test defines.
import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { once } from "node:events";
import grpc from "@grpc/grpc-js";

/** Collects what the `before` of a suite opens, so that its `after` can close it. Has `after` like a test's context. */
export class Ends {
  #ends = [];

  after(end) {
    this.#ends.push(end);
  }

  async run() {
    for (const end of this.#ends.reverse()) await end();
  }
}

export function temporaryFolder(t) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "posenc-node-"));
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Starts the program $POSENCD, and returns its address. The server ends with the test. */
export async function startServer(t, ...flags) {
  const ready = path.join(temporaryFolder(t), "ready");
  const server = spawn(
    process.env.POSENCD,
    ["--listen", "127.0.0.1:0", "--ready-file", ready, "--drain-timeout", "1s", ...flags],
    {
      stdio: ["ignore", "ignore", "pipe"],
    },
  );
  let log = "";
  server.stderr.on("data", (text) => (log += text));
  t.after(async () => {
    if (server.exitCode !== null) return;
    server.kill("SIGTERM");
    await once(server, "exit");
  });
  for (let i = 0; i < 1200; ++i) {
    if (server.exitCode !== null) throw new Error(`posencd ended: ${log}`);
    const address = fs.existsSync(ready) ? fs.readFileSync(ready, "utf8").split("\n")[0] : "";
    if (address) return address;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`posencd is not ready after 60 s: ${log}`);
}

const identity = (bytes) => bytes;

/**
 * Starts a fake server. `methods` has a handler(bytes or stream, respond, metadata) by the name of the method. Other
 * methods are UNIMPLEMENTED. Returns the server's address.
 */
export async function startFake(t, methods) {
  const server = new grpc.Server({ "grpc.max_receive_message_length": -1 });
  const definition = {};
  const handlers = {};
  for (const [name, { streams = false, handle }] of Object.entries(methods)) {
    definition[name] = {
      path: `/posenc.v1.PositionalEncodingService/${name}`,
      requestStream: streams,
      responseStream: streams,
      requestSerialize: identity,
      requestDeserialize: identity,
      responseSerialize: identity,
      responseDeserialize: identity,
    };
    handlers[name] = handle;
  }
  server.addService(definition, handlers);
  const port = await new Promise((resolve, reject) =>
    server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    ),
  );
  t.after(() => server.forceShutdown());
  return `127.0.0.1:${port}`;
}

/** Makes a certificate authority, and a certificate for localhost that it signs, as PEM files. */
export function makeCertificates(folder, name) {
  const file = (suffix) => path.join(folder, `${name}${suffix}`);
  const openssl = (...words) => execFileSync("openssl", words, { stdio: "pipe" });
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  openssl(
    "req",
    "-x509",
    ...key,
    "-keyout",
    file("-ca.key"),
    "-out",
    file("-ca.pem"),
    "-subj",
    `/CN=${name}`,
    "-days",
    "2",
  );
  openssl("req", ...key, "-keyout", file(".key"), "-out", file(".csr"), "-subj", "/CN=localhost");
  fs.writeFileSync(file(".ext"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
  openssl(
    "x509",
    "-req",
    "-in",
    file(".csr"),
    "-CA",
    file("-ca.pem"),
    "-CAkey",
    file("-ca.key"),
    "-CAcreateserial",
    "-out",
    file(".pem"),
    "-days",
    "2",
    "-extfile",
    file(".ext"),
  );
  return { ca: file("-ca.pem"), cert: file(".pem"), key: file(".key") };
}
