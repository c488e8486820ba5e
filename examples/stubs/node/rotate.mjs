// Rotates q with only generated code. node rotate.mjs ADDRESS PROTO_FOLDER
//
//   npm install @grpc/grpc-js @grpc/proto-loader
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const [address, protos] = process.argv.slice(2);
const limit = 512 * 2 ** 20; // the server's default
const definition = loader.loadSync("posenc/v1/service.proto", { includeDirs: [protos], longs: Number, enums: String });
const { PositionalEncodingService } = grpc.loadPackageDefinition(definition).posenc.v1;
const client = new PositionalEncodingService(address, grpc.credentials.createInsecure(), {
  "grpc.max_receive_message_length": limit, // the default is 4 MiB
  "grpc.max_send_message_length": limit,
});

const shape = [1, 1024, 32, 128]; // 16 MiB
const q = new Float32Array(shape.reduce((a, b) => a * b)).fill(1);
const request = {
  rope: { preset: "llama-3.1-8b" },
  positions: { start: 0 },
  layout: "LAYOUT_BSHD", // proto-loader ignores misspelt fields: take care
  q: { dtype: "DTYPE_FLOAT32", shape, data: Buffer.from(q.buffer) },
};
const bytes = PositionalEncodingService.service.ApplyRope.requestSerialize(request).length;
const metadata = new grpc.Metadata();
metadata.set("posenc-message-bytes", String(bytes));
client.ApplyRope(request, metadata, { deadline: Date.now() + 30_000 }, (error, answer) => {
  client.close();
  if (error) throw error;
  // Copies the answer's bytes, because a Float32Array must begin at a multiple of 4.
  const rotated = new Float32Array(new Uint8Array(answer.q.data).buffer);
  console.log(`${rotated.byteLength} bytes, rotated; at position 0 ${rotated[0]}, at position 1 ${rotated[32 * 128].toFixed(6)}`);
});
