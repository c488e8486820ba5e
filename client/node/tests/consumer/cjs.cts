import posenc = require("posenc");

export const client: posenc.Client = posenc.connect("localhost:50051", {
  tls: { caFile: "ca.pem" },
  tokenFile: "token",
});
export const spec: posenc.messages.RopeSpec = {
  pairing: "half_split",
  rotaryDim: 64,
  yarn: { factor: 4, originalMaxPositionEmbeddings: 4096 },
};
