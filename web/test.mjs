// Runs the tests of the parts that need no browser: src/**/*.test.ts, bundled by esbuild, by node's own runner.
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { spawnSync } from "node:child_process";
import { build } from "esbuild";

const files = readdirSync("src", { recursive: true }).filter((name) => name.endsWith(".test.ts"));
const outdir = mkdtempSync(join(tmpdir(), "viewer-tests-"));
await build({
  entryPoints: files.map((name) => join("src", name)),
  outdir,
  outExtension: { ".js": ".mjs" },
  bundle: true,
  platform: "node",
  format: "esm",
  logLevel: "warning",
});
const made = readdirSync(outdir, { recursive: true }).filter((name) => name.endsWith(".mjs"));
const { status } = spawnSync(process.execPath, ["--test", ...made.map((name) => join(outdir, name))], { stdio: "inherit" });
rmSync(outdir, { recursive: true });
process.exit(status ?? 1);
