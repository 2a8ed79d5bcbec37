// Asks the data of a single file as its page does. Usage: node ask_file.mjs FILE_SOURCE.mjs < {"html", "questions"}
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { FileSource } = await import(pathToFileURL(process.argv[2]));
const { html, questions } = JSON.parse(readFileSync(0, "utf8"));
const blocks = new Map();
for (const [, id, text] of readFileSync(html, "utf8").matchAll(/<script type="application\/octet-stream" id="([^"]*)">([^<]*)<\/script>/g)) {
  blocks.set(id, text);
}
const source = new FileSource((id) => blocks.get(id) ?? null);
const answers = [];
for (const [question, params] of questions) {
  try {
    if (question === "timeline_all") answers.push({ bytes: Buffer.from(await source.bytes(question, params)).toString("base64") });
    else answers.push({ answer: await source.ask(question, params) });
  } catch (error) {
    answers.push({ status: error.status ?? null, message: error.message });
  }
}
process.stdout.write(JSON.stringify(answers));
