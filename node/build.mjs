// Compiles the libraries from the sources of the repository, and puts them where the package looks.
import { execFileSync } from "node:child_process";
import { copyFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.dirname(here);
const target = path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
const packages = ["-p", "llama-sieve", "-p", "llama-sieve-preload"];
execFileSync("cargo", ["build", "--release", "--locked", ...packages], {
    cwd: root,
    stdio: "inherit",
});
for (const library of ["libllama_sieve.so", "libllama_sieve_preload.so"]) {
    copyFileSync(path.join(target, "release", library), path.join(here, "lib", library));
}
