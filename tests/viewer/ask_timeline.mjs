// Asks the timeline of a single file as its page does. Usage: node ask_timeline.mjs MODULE.mjs < {"html", "calls"}
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

// the module takes the page's selection and theme from these
globalThis.location = { hash: "" };
const { answers } = await import(pathToFileURL(process.argv[2]));
const { html, calls } = JSON.parse(readFileSync(0, "utf8"));
const blocks = new Map();
for (const [, id, text] of readFileSync(html, "utf8").matchAll(/<script type="application\/octet-stream" id="([^"]*)">([^<]*)<\/script>/g)) {
  blocks.set(id, text);
}
process.stdout.write(JSON.stringify(await answers((id) => blocks.get(id) ?? null, calls)));
