// Builds the viewer's script and style into opscope/viewer/static, the same bytes each time, and the notices of the
// packages that the script holds. Usage: node build.mjs [FOLDER]
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const outdir = process.argv[2] ?? "../opscope/viewer/static";

const { metafile } = await build({
  // loader.js unpacks viewer.js in a single file
  entryPoints: { viewer: "src/main.tsx", loader: "src/loader.ts" },
  outdir,
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  // THIRD_PARTY.txt has the notices whole, also of packages that keep theirs out of their code
  legalComments: "none",
  charset: "utf8",
  logLevel: "info",
  metafile: true,
});

const PACKAGE = /(?:^|\/)node_modules\/((?:@[^/]+\/)?[^/]+)\//;
const bundled = new Set();
for (const [path, { bytesInOutput }] of Object.values(metafile.outputs).flatMap((out) => Object.entries(out.inputs))) {
  const name = PACKAGE.exec(path)?.[1];
  if (name && bytesInOutput > 0) bundled.add(name);
}

const notices = [...bundled].sort().map((name) => {
  const folder = join("node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).sort().find((entry) => /^(licen[cs]e|copying)/i.test(entry));
  if (!file) throw new Error(`${name} has no file with its licence: its notice cannot be shipped`);
  const text = readFileSync(join(folder, file), "utf8").replaceAll("\r\n", "\n").trim();
  return `${name} ${version} (${license})\n\n${text}\n`;
});
const head = "viewer.js and viewer.css hold code of these packages.\n";
writeFileSync(join(outdir, "THIRD_PARTY.txt"), [head, ...notices].join(`\n${"-".repeat(80)}\n\n`));
