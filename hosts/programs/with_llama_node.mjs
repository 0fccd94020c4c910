// Generates with @fugood/llama.node, for hosts/llama_node.py:
// node with_llama_node.mjs SMALL LARGE PROMPT.
import {loadModel} from "@fugood/llama.node";

const [small, large, prompt] = process.argv.slice(2);
const tokens = 48;
const base = {prompt, n_predict: tokens, seed: 42, temperature: 0.8, ignore_eos: true};
// The settings that are timed.
const settings = {
    "defaults": {},
    "penalties": {penalty_repeat: 1.1, penalty_freq: 0.1, penalty_present: 0.1},
    "top-p alone": {top_k: 0, min_p: 0}
};
const more = {
    "greedy": {temperature: 0},
    "dry": {dry_multiplier: 2, dry_allowed_length: 1, dry_penalty_last_n: 48},
    "logit bias": {logit_bias: [[5, 2.5], [300, -1.5], [301, 0.75]]},
    "typical": {top_k: 0, top_p: 1, min_p: 0, typical_p: 0.9},
    "top-n-sigma": {top_k: 0, top_p: 1, min_p: 0, top_n_sigma: 1.2},
    "xtc": {xtc_probability: 0.6, xtc_threshold: 0.05},
    "mirostat": {mirostat: 1},
    "mirostat-v2": {mirostat: 2},
    "probabilities": {n_probs: 3},
    "grammar": {grammar: 'root ::= ([A-Za-z ,;]+ ("." | ":" | "\\n")){1,200}'}
};
const texts = {};
const rates = {};

// Runs a completion. The addon may report the end of one while it is still busy with it.
async function complete(context, options) {
    for (let i = 0; i < 1000; i++) {
        try {
            return await context.completion(options);
        } catch (error) {
            if (!String(error).includes("in progress")) {
                throw error;
            }
            await new Promise((resolve) => setTimeout(resolve, 1));
        }
    }
    throw new Error("still busy");
}

for (const [name, model] of Object.entries({small, large})) {
    const context = await loadModel({model, n_ctx: 256, n_threads: 1});
    // A first token, so that lazy loading is not timed.
    await complete(context, {...base, n_predict: 1});
    for (const [setting, values] of Object.entries({...settings, ...more})) {
        const before = process.cpuUsage();
        const answer = await complete(context, {...base, ...values});
        const spent = process.cpuUsage(before);
        texts[`${name}: ${setting}`] =
            JSON.stringify([answer.text, answer.completion_probabilities]);
        if (setting in settings) {
            rates[`${name}: ${setting}`] = tokens * 1e6 / (spent.user + spent.system);
        }
    }
    await context.release();
}
// The addon may have left a line unfinished.
console.log("\n" + JSON.stringify({texts, rates}));
process.exit(0);
