//! The sections of the header.

/// A section of the header.
pub struct Section {
    pub title: &'static str,
    /// The text below the title.
    pub words: &'static str,
    /// Prefixes of the names in the section, in lower case and without `llama_sieve_`, separated by
    /// spaces. A name belongs to the section that lists its longest prefix.
    pub names: &'static str,
}

pub const SECTIONS: [Section; 8] = [
    Section {
        title: "The library",
        words: "Its version, its errors, and its messages.",
        names: "error_ last_error log_ max_elements ok simd version",
    },
    Section {
        title: "Samplers",
        words: "\
One constructor for each built-in sampler of llama.cpp, with the same arguments, two for samplers
that llama.cpp had, and ten for samplers that it never had. Each makes a sampler for the host's
chain. The sampler for a built-in leaves the candidates that the built-in leaves.
\"Disabled\" names the arguments with which a sampler does nothing. If an argument of type float is
not finite, one warning is logged, a filter does nothing, and a selector takes the largest logit.
A constructor returns NULL if there is no llama.cpp in the process, or not enough memory.",
        names: "ban_ dry_ get_seed init_ loop_",
    },
    Section {
        title: "Chains, straight from the logits",
        words: "\
These functions sample with a host's chain, without the array of all candidates, which
llama_sampler_sample fills first. The chain is the host's own, with any members in any order.",
        names: "chain_ max_batch trace",
    },
    Section {
        title: "The sieve",
        words: "\
A sampler of its own, of one sequence: raw logits to a token in one call, without a llama.cpp.
Its parameters may change at each token, and its state can be saved. With its default parameters
and a seed it gives the tokens of llama.cpp's default chain. llama_sieve_sample is the call for
every token; all other functions are optional. Logits have the sizes and errors that
llama_sieve_sample describes.",
        names: "\
accept adjusted_logit candidates clone current_seed default_ error free get_params get_stages
greedy history_ init_sampler last_stats llama_sieve max_reserved max_samplers measure method_ mode_
n_accepted new of_sampler order_ params reserve reset rng_ sample set_ stage state_ stats
top_candidates",
    },
    Section {
        title: "Token tries",
        words: "\
A constraint for the host's chain: the next tokens are one value of a set. The tokens of a value
are a span. A sampler is made with a set, or as a slot, whose set comes later and may be replaced
at any time.",
        names: "cache_stats eliza_inference_ init_trie llama_sampler_init_token_trie trie_",
    },
    Section {
        title: "Grammars",
        words: "\
Constraints for the host's chain: the generated text matches a grammar in llama.cpp's notation
or a regular expression, satisfies a JSON Schema, or is one of a list. The limits bound the
memory and work that an untrusted grammar causes; one that exceeds them is refused, or ends the
generation.",
        names: "\
choice_ grammar_ init_choice init_grammar init_json_schema init_regex init_tags json_
max_vocabularies pattern_ tags_ vocab_forget",
    },
    Section {
        title: "Metrics",
        words: "\
These functions measure how certain a model is, from its raw logits or from the candidates that
filters left. They need no llama.cpp and no other object.",
        names: "candidates_entropy candidates_surprisal entropy ppl surprisal",
    },
    Section {
        title: "The host",
        words: "\
The llama.cpp of the process, which the library finds by itself. These functions are for programs
that have several, or that must know whether the host's samplers equal those of this library.",
        names: "attach bind_host certify detach host_profile",
    },
];
