//! The patterns of control, one function each.

use std::collections::HashSet;
use std::sync::Arc;

use llama_sieve::metrics::{self, Base, RollingPerplexity};
use llama_sieve::samplers::{Dist, MinP, Temp, TopK, TopP};
use llama_sieve::sieve::{Params, RngKind, Sieve, greedy, top_candidates};
use llama_sieve::trie::{Cursor, Payload, Trie};
use llama_sieve::{Chain, Token, TokenData};

use crate::{Next, Session};

pub type Pattern = fn(&mut Session<'_>) -> Result<(), String>;

pub const PATTERNS: [(&str, Pattern); 14] = [
    ("plain", plain),
    ("deterministic", deterministic),
    ("creative", creative),
    ("factual", factual),
    ("concise", concise),
    ("adaptive", adaptive),
    ("steering", steering),
    ("validation", validation),
    ("constrained", constrained),
    ("bursts", bursts),
    ("guard", guard),
    ("growth", growth),
    ("perplexity", perplexity),
    ("replay", replay),
];

/// Generates a text with constant parameters.
fn plain(session: &mut Session<'_>) -> Result<(), String> {
    session.draw(&session.params()).map(drop)
}

/// Shows that a fixed seed gives a fixed text, whatever else runs in the process.
fn deterministic(session: &mut Session<'_>) -> Result<(), String> {
    let params = session.params();
    let first = session.draw(&params)?;
    let second = session.draw(&params)?;
    eprintln!(
        "the two texts are {}",
        if first == second {
            "identical"
        } else {
            "different"
        }
    );
    (first == second)
        .then_some(())
        .ok_or_else(|| "one seed gave two texts".to_owned())
}

/// Generates a text in which top-p and min-p decide the number of candidates, without top-k, and
/// repetition is penalised.
fn creative(session: &mut Session<'_>) -> Result<(), String> {
    let params = Params {
        temperature: 1.2,
        top_p: 0.95,
        top_k: 0,
        min_p: 0.02,
        penalty_repeat: 1.15,
        ..session.params()
    };
    session.draw(&params).map(drop)
}

/// Shows that greedy sampling without penalties is the plain maximum, for which no sieve is needed.
fn factual(session: &mut Session<'_>) -> Result<(), String> {
    let params = Params {
        temperature: 0.1,
        top_k: 1,
        penalty_repeat: 1.0,
        ..session.params()
    };
    let check = |sieve: &mut Sieve, logits: &[f32]| {
        let token = sieve.sample(logits).map_err(|e| e.to_string())?;
        assert_eq!(Ok(token), greedy(logits));
        Ok(Next::Sample)
    };
    session.generate(&params, check).map(drop)
}

/// Runs stages of the caller's choice and order, as a llama.cpp chain does.
fn concise(session: &mut Session<'_>) -> Result<(), String> {
    let seed = session.options.seed as u32;
    let mut chain = Chain::new()
        .with(TopK::new(20))
        .with(MinP::new(0.1, 1))
        .with(TopP::new(0.8, 1))
        .with(Temp::new(0.7))
        .with(Some(Dist::new(seed)));
    let choose = |_: &mut Sieve, logits: &[f32]| {
        let token = chain.sample(logits).map_err(|e| e.to_string())?;
        chain.accept(token);
        Ok(Next::Take(token))
    };
    session.generate(&session.params(), choose).map(drop)
}

/// Widens a distribution of low entropy, and narrows one of high entropy.
fn adaptive(session: &mut Session<'_>) -> Result<(), String> {
    let base = session.params();
    let widen = Params {
        top_k: 256,
        temperature: 1.5,
        top_p: 0.98,
        ..base.clone()
    };
    let focus = Params {
        top_k: 20,
        temperature: 0.5,
        top_p: 0.9,
        ..base.clone()
    };
    let (mut widened, mut focused) = (0, 0);
    let adapt = |_: &Sieve, logits: &[f32]| {
        let entropy = metrics::entropy(logits, Base::Nats).ok_or("no token has a probability")?;
        Ok(match entropy {
            ..2.0 => {
                widened += 1;
                &widen
            }
            5.0.. => {
                focused += 1;
                &focus
            }
            _ => &base,
        })
    };
    let tokens = session.steer(&base, adapt)?.len();
    eprintln!(
        "{tokens} tokens: entropy below 2 nats at {widened} tokens (widened), above 5 at {focused} tokens (focused)"
    );
    Ok(())
}

/// Bans tokens with a bias of minus infinity, and favours others with a positive one. The model's
/// logits are not modified.
fn steering(session: &mut Session<'_>) -> Result<(), String> {
    let (vetoed, boosted) = ("LORD", " God");
    let pieces = session.pieces();
    let with = |text: &str| -> Vec<Token> {
        let found = pieces.iter().filter(|(_, piece)| piece.contains(text));
        found.map(|&(token, _)| token).collect()
    };
    let mut params = session.params();
    params.bias.extend(
        with(vetoed)
            .into_iter()
            .map(|token| (token, f32::NEG_INFINITY)),
    );
    params
        .bias
        .extend(with(boosted).into_iter().map(|token| (token, 2.0)));
    let banned: HashSet<Token> = with(vetoed).into_iter().collect();
    let tokens = session.draw(&params)?;
    let text = session.text(&tokens);
    eprintln!(
        "{} token ids are banned; {boosted:?} occurs {} times",
        banned.len(),
        text.matches(boosted).count()
    );
    assert!(tokens.iter().all(|token| !banned.contains(token)));
    Ok(())
}

/// Lets the text so far decide the next token: after " said", " unto" is favoured, and " to", a
/// comma and a full stop are banned.
fn validation(session: &mut Session<'_>) -> Result<(), String> {
    let pieces = session.pieces();
    let id = |text: &str| {
        let found = pieces.iter().find(|(_, piece)| piece == text);
        found.map(|&(token, _)| token)
    };
    let said = id(" said").ok_or("the model has no token \" said\"")?;
    let unto = id(" unto").ok_or("the model has no token \" unto\"")?;
    let others: Vec<Token> = [" to", ",", "."].into_iter().filter_map(id).collect();
    let base = session.params();
    let mut behind_said = base.clone();
    behind_said.bias.push((unto, 10.0));
    let vetoes = others.iter().map(|&token| (token, f32::NEG_INFINITY));
    behind_said.bias.extend(vetoes);
    let mut validated = 0;
    let validate = |sieve: &Sieve, _: &[f32]| {
        let is_behind = sieve.history().tokens().last() == Some(said);
        validated += usize::from(is_behind);
        Ok(if is_behind { &behind_said } else { &base })
    };
    let tokens = session.steer(&base, validate)?;
    let wrong = tokens
        .windows(2)
        .filter(|pair| pair[0] == said && others.contains(&pair[1]));
    let wrong = wrong.count();
    eprintln!("the token behind \" said\" was validated {validated} times, {wrong} were wrong");
    (wrong == 0)
        .then_some(())
        .ok_or_else(|| "a veto was ignored".to_owned())
}

/// Lets through only tokens that continue one of the names, and does not sample forced ones. After
/// the name the text continues freely.
fn constrained(session: &mut Session<'_>) -> Result<(), String> {
    let names = [
        " Moses",
        " Aaron",
        " Joshua the son of Nun",
        " the king of Assyria",
    ];
    let leaves: Vec<_> = names
        .iter()
        .map(
            |name| serde_json::json!({"name": name, "tokens": session.model.tokenize(name, false)}),
        )
        .collect();
    let payload = serde_json::json!({"descriptors": [{"path": "name", "leaves": leaves}]});
    let payload = payload.to_string();
    let payload = Payload::parse(payload.as_bytes(), Some(session.model.n_vocab()))?;
    let mut cursor = Cursor::new(Arc::new(Trie::new(&payload)));
    let mut forced = 0;
    let mut merged = Vec::new();
    let constrain = |sieve: &mut Sieve, logits: &[f32]| {
        // The token that was drawn last has become part of the text.
        if let Some(token) = sieve.history().tokens().last() {
            cursor.accept(token);
        }
        if !cursor.is_active() {
            return Ok(Next::Sample);
        }
        if let Some(token) = cursor.forced().next() {
            forced += 1;
            return Ok(Next::Take(token));
        }
        let mut masked = vec![f32::NEG_INFINITY; logits.len()];
        for &token in cursor.allowed(&mut merged) {
            masked[token as usize] = logits[token as usize];
        }
        Ok(Next::SampleOf(masked))
    };
    session.generate(&session.params(), constrain)?;
    let name = cursor.leaf().ok_or("-n leaves no room for a name")?;
    eprintln!("the name is {name:?}; {forced} of its tokens were forced");
    Ok(())
}

/// Raises the penalties while the last three tokens have already occurred earlier in the same
/// order.
fn guard(session: &mut Session<'_>) -> Result<(), String> {
    const TOGETHER: usize = 3;
    let base = session.params();
    let away = Params {
        penalty_repeat: 1.4,
        penalty_freq: 0.3,
        temperature: base.temperature.max(1.0),
        ..base.clone()
    };
    let mut guarded = 0;
    let guard = |sieve: &Sieve, _: &[f32]| {
        let text: Vec<Token> = sieve.history().tokens().collect();
        let repeats = text
            .split_last_chunk::<TOGETHER>()
            .is_some_and(|(before, last)| before.windows(TOGETHER).any(|run| run == last));
        guarded += usize::from(repeats);
        Ok(if repeats { &away } else { &base })
    };
    let tokens = session.steer(&base, guard)?.len();
    eprintln!("{tokens} tokens, {guarded} of them behind a repetition");
    Ok(())
}

/// Draws a token from a wider distribution with a higher temperature where none of the five most
/// probable tokens reaches a probability of 0.15.
fn bursts(session: &mut Session<'_>) -> Result<(), String> {
    let base = session.params();
    let explore = Params {
        top_k: 256,
        temperature: 1.3,
        typical_p: 0.9,
        ..base.clone()
    };
    let mut top: Vec<TokenData> = Vec::new();
    let mut n_bursts = 0;
    let burst = |_: &Sieve, logits: &[f32]| {
        top_candidates(logits, 5, &mut top).map_err(|e| e.to_string())?;
        let uncertain = top.iter().all(|candidate| candidate.p < 0.15);
        n_bursts += usize::from(uncertain);
        Ok(if uncertain { &explore } else { &base })
    };
    let tokens = session.steer(&base, burst)?.len();
    eprintln!("{tokens} tokens, {n_bursts} bursts");
    Ok(())
}

/// Sets parameters that need more memory for some tokens. Buffers grow by powers of two and never
/// shrink, and `reserve` allocates them before the first token.
fn growth(session: &mut Session<'_>) -> Result<(), String> {
    let base = session.params();
    let steps = [
        base.clone(),
        Params {
            top_k: 320,
            temperature: 1.2,
            ..base.clone()
        },
        Params {
            typical_p: 0.9,
            temperature: 0.6,
            ..base.clone()
        },
    ];
    let mut sizes: Vec<usize> = Vec::new();
    let mut token = 0;
    let grow = |sieve: &Sieve, _: &[f32]| {
        let bytes = sieve.workspace_bytes();
        if sizes.last() != Some(&bytes) {
            sizes.push(bytes);
        }
        token += 1;
        Ok(&steps[(token - 1) % steps.len()])
    };
    session.steer(&base, grow)?;
    eprintln!("bytes of the buffers, whenever they grew: {sizes:?}");
    Ok(())
}

/// Draws single positions of a text again, from their logits and the tokens before them. This works
/// since the generator by position only hashes the seed and the token's position.
fn replay(session: &mut Session<'_>) -> Result<(), String> {
    let params = Params {
        rng: RngKind::Position,
        temperature: session.params().temperature.max(0.5),
        ..session.params()
    };
    let mut kept: Vec<Vec<f32>> = Vec::new();
    let keep = |_: &mut Sieve, logits: &[f32]| {
        kept.push(logits.to_vec());
        Ok(Next::Sample)
    };
    let tokens = session.generate(&params, keep)?;
    for position in [tokens.len() - 1, tokens.len() / 2, 0] {
        let mut alone = Sieve::new(&params).map_err(|e| e.to_string())?;
        tokens[..position]
            .iter()
            .for_each(|&token| alone.accept(token));
        let again = alone.sample(&kept[position]).map_err(|e| e.to_string())?;
        if again != tokens[position] {
            return Err(format!("position {position} gave another token"));
        }
    }
    eprintln!(
        "last, middle and first position of {} gave the same tokens again",
        tokens.len()
    );
    Ok(())
}

/// Generates a text and computes its perplexity from the model's raw logits. Stops the generation
/// when the perplexity of 10 or more tokens exceeds 50.
fn perplexity(session: &mut Session<'_>) -> Result<(), String> {
    const GATE: f32 = 50.0;
    let params = Params {
        temperature: 1.5,
        top_k: 0,
        top_p: 0.99,
        min_p: 0.0,
        ..session.params()
    };
    let mut perplexity = RollingPerplexity::default();
    let mut unexpected = 0;
    let mut last: Option<Vec<f32>> = None;
    let gate = |sieve: &mut Sieve, logits: &[f32]| {
        // The last token was chosen from the logits of the previous position.
        if let (Some(before), Some(token)) = (&last, sieve.history().tokens().last()) {
            let surprisal =
                metrics::surprisal(before, token, Base::Nats).ok_or("no distribution")?;
            unexpected += usize::from(surprisal > 8.0);
            perplexity.add(surprisal);
        }
        last = Some(logits.to_vec());
        let enough = perplexity.count() >= 10;
        Ok(if enough && perplexity.value() > GATE {
            Next::Stop
        } else {
            Next::Sample
        })
    };
    session.generate(&params, gate)?;
    eprintln!(
        "perplexity {:.1} after {} tokens, {unexpected} of them with more than 8 nats; {}",
        perplexity.value(),
        perplexity.count(),
        if perplexity.value() > GATE {
            "stopped at the gate"
        } else {
            "the gate stayed open"
        }
    );
    Ok(())
}
