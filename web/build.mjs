// Builds the page into internal/admin/page, from where the binary embeds it, and writes
// down what it was built from, so that a test without npm can tell whether it is up to date.
import { createHash } from "node:crypto";
import { copyFile, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { build } from "esbuild";

const out = process.env.OUT ?? "../internal/admin/page";
await mkdir(out, { recursive: true });
await build({
  entryPoints: { app: "src/main.tsx" },
  outdir: out,
  bundle: true,
  minify: true,
  legalComments: "none",
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
});
await copyFile("src/index.html", `${out}/index.html`);

const files = ["package.json", "package-lock.json", "tsconfig.json", "build.mjs"];
for (const f of (await readdir("src")).sort()) files.push(`src/${f}`);
const sum = createHash("sha256");
for (const f of files.sort()) sum.update(`${f}\n`).update(await readFile(f));
await writeFile(`${out}/sources.sha256`, `${sum.digest("hex")}\n`);
