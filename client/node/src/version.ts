import fs from "node:fs";
import path from "node:path";

/** The version of this package. */
export const version: string = JSON.parse(fs.readFileSync(path.join(__dirname, "..", "package.json"), "utf8")).version;
