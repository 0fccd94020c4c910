// Continues a sentence with node-llama-cpp as published on npm. LD_PRELOAD decides whether its
// samplers are llama.cpp's own or ours; the text is the same.
//
//     npm install --no-save --prefix examples/node node-llama-cpp@3.22.1
//     node examples/node/generate.mjs models/kjv-tiny.gguf
import { LlamaCompletion, getLlama } from "node-llama-cpp";

const [modelPath, prompt = "And the LORD said unto"] = process.argv.slice(2);
if (modelPath === undefined) {
    console.error("usage: node generate.mjs MODEL.gguf [PROMPT]");
    process.exit(2);
}
const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({ threads: 1, contextSize: 256 });
const completion = new LlamaCompletion({ contextSequence: context.getSequence() });
const text = await completion.generateCompletion(prompt, {
    temperature: 0.8,
    topK: 40,
    topP: 0.95,
    seed: 42,
    repeatPenalty: false,
    maxTokens: 48,
});
console.log(JSON.stringify(text));
// The addon's threads would keep the process alive.
process.exit(0);
