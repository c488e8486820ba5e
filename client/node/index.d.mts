import * as posenc from "./dist/index.js";

export default posenc;
export * from "./dist/index.js";
