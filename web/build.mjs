// Builds the viewer's script and style into opscope/viewer/static, the same bytes each time.
import { build } from "esbuild";

const outdir = process.argv[2] ?? "../opscope/viewer/static";

await build({
  entryPoints: { viewer: "src/main.tsx" },
  outdir,
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "linked",
  charset: "utf8",
  logLevel: "info",
});
