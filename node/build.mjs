// Compiles the library from the sources of the repository, and puts it where the package searches
// for it.
import { execFileSync } from "node:child_process";
import { copyFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.dirname(here);
const target = path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
execFileSync("cargo", ["build", "--release", "--locked", "-p", "llama-sieve-preload"], {
    cwd: root,
    stdio: "inherit",
});
const library = "libllama_sieve_preload.so";
copyFileSync(path.join(target, "release", library), path.join(here, "lib", library));
