// Generates with node-llama-cpp, for hosts/node.py: node with_node.mjs SMALL LARGE PROMPT.
// Versions that do not know an option ignore it. LLAMA_SIEVE_ATTACH is the path of a library to
// attach to this process.
import {getLlama, LlamaCompletion, LlamaGrammar, TokenBias} from "node-llama-cpp";

const [small, large, prompt] = process.argv.slice(2);
const base = {temperature: 0.8, topK: 40, topP: 0.95, minP: 0.05, seed: 42, repeatPenalty: false};
// The settings that are timed.
const settings = {
    "defaults": base,
    "penalties": {...base, repeatPenalty: {
        lastTokens: 64, penalty: 1.1, frequencyPenalty: 0.1, presencePenalty: 0.1,
        penalizeNewLine: true, punishTokensFilter: (tokens) => tokens
    }},
    "top-p alone": {...base, topK: 0, minP: 0}
};
const tokens = 48;
const texts = {};
const rates = {};
const llama = await getLlama({gpu: false, build: "never", logLevel: "error"});
if (process.env.LLAMA_SIEVE_ATTACH) {
    const {default: koffi} = await import("koffi");
    const sieve = koffi.load(process.env.LLAMA_SIEVE_ATTACH);
    const imports = sieve.func("int llama_sieve_attach(uint32_t flags)")(0);
    if (imports <= 0) {
        throw new Error(`${imports}: ${sieve.func("const char * llama_sieve_last_error()")()}`);
    }
}
const more = (model) => {
    const biased = TokenBias.for(model);
    for (const [token, bias] of [[5, 0.5], [300, -0.5], [301, 0.75]]) {
        biased.set(token, bias);
    }
    const line = 'root ::= ([A-Za-z ,;]+ ("." | ":" | "\\n")){1,200}';
    return {
        "greedy": {...base, temperature: 0},
        "min-p": {...base, topK: 0, topP: 1, minP: 0.02},
        "xtc": {...base, xtc: {probability: 0.6, threshold: 0.05}},
        "logit bias": {...base, tokenBias: biased},
        "grammar": {...base, grammar: new LlamaGrammar(llama, {grammar: line})}
    };
};
for (const [name, modelPath] of Object.entries({small, large})) {
    const model = await llama.loadModel({modelPath});
    // A first token, so that lazy loading is not timed.
    const warming = await model.createContext({threads: 1, contextSize: 256});
    await new LlamaCompletion({contextSequence: warming.getSequence()})
        .generateCompletion(prompt, {...base, maxTokens: 1});
    await warming.dispose();
    for (const [setting, values] of Object.entries({...settings, ...more(model)})) {
        const context = await model.createContext({threads: 1, contextSize: 256});
        const completion = new LlamaCompletion({contextSequence: context.getSequence()});
        let produced = 0;
        const before = process.cpuUsage();
        const text = await completion.generateCompletion(prompt, {
            ...values, maxTokens: tokens, onToken: (chunk) => { produced += chunk.length; }
        });
        const spent = process.cpuUsage(before);
        texts[`${name}: ${setting}`] = text;
        if (setting in settings) {
            rates[`${name}: ${setting}`] = produced * 1e6 / (spent.user + spent.system);
        }
        await context.dispose();
    }
    // LlamaCompletion does not pass DRY's options on.
    const context = await model.createContext({threads: 1, contextSize: 256});
    const dry = {strength: 0.8, base: 1.75, allowedLength: 1, lastTokens: 48};
    const evaluated = context.getSequence()
        .evaluate(model.tokenize(prompt), {...base, dryRepeatPenalty: dry});
    const said = [];
    for await (const token of evaluated) {
        said.push(token);
        if (said.length >= tokens) {
            break;
        }
    }
    texts[`${name}: dry`] = said.join(" ");
    await context.dispose();
}
console.log(JSON.stringify({texts, rates}));
process.exit(0);
