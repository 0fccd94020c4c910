// Calls that the types must accept, and calls that they must reject: `npm run types`.
import { Chain, JsonSchema, Sieve, entropy, jsonSchemaToGbnf, samplers } from "llama-sieve";
import type { Candidate, SieveParams } from "llama-sieve";

const params: SieveParams = { topK: 40, rng: "mt19937", bias: { 3: -Infinity } };
const sieve = new Sieve(params);
const token: number = sieve.sample(new Float32Array(8));
const half: number = sieve.sample(new Uint16Array(8), "bf16");
const first: Candidate | undefined = sieve.candidates()[0];
const bits: number = entropy(new Float32Array(8), "bits");
const gbnf: string = jsonSchemaToGbnf({ type: "object" }, { compact: true });
import "llama-sieve/attach";

const chain = new Chain(new JsonSchema(1n, "{}"), samplers.topP(0.9), samplers.dist(token));
chain.accept(half, token);
console.log(first?.p, bits, gbnf, sieve.stats.samplingEntropy);

// @ts-expect-error No such parameter.
new Sieve({ top_k: 40 });
// @ts-expect-error An array of numbers is not read in place.
sieve.sample([1, 2, 3]);
// @ts-expect-error No such generator.
sieve.update({ rng: "pcg" });
// @ts-expect-error A number is not a pointer.
new JsonSchema(5, {});
