// Measures grpc-js alone: a unary call to an echo server in another process. A
// client that uses grpc-js cannot make a unary call faster. The flow-control
// window is as large as the client's. If this file is run as a program, it is
// the server.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";

const file = fileURLToPath(import.meta.url);
const path = "/echo/Echo";
const same = (bytes) => bytes;
const options = {
  "grpc.max_send_message_length": -1,
  "grpc.max_receive_message_length": -1,
  "grpc-node.flow_control_window": 16 << 20,
};

/** Starts the server. Returns a function that calls it, and a function that ends it. */
export async function startEcho() {
  const server = spawn(process.execPath, [...process.execArgv, file], { stdio: ["pipe", "pipe", "inherit"] });
  const [port] = await once(server.stdout, "data");
  const client = new grpc.Client(`127.0.0.1:${port}`, grpc.credentials.createInsecure(), options);
  return {
    call: (bytes) =>
      new Promise((resolve, reject) => {
        client.makeUnaryRequest(path, same, same, bytes, (error, answer) => (error ? reject(error) : resolve(answer)));
      }),
    end() {
      client.close();
      server.kill();
    },
  };
}

if (process.argv[1] === file) {
  const server = new grpc.Server(options);
  const method = {
    path,
    requestStream: false,
    responseStream: false,
    requestSerialize: same,
    requestDeserialize: same,
    responseSerialize: same,
    responseDeserialize: same,
  };
  server.addService({ echo: method }, { echo: (call, answer) => answer(null, call.request) });
  server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, port) => {
    if (error) throw error;
    process.stdout.write(String(port));
  });
  // Standard input ends when the process that started this process ends.
  process.stdin.on("end", () => process.exit()).resume();
}
