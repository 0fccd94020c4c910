//! The settings that tsampler and Akunu recommend, by name.

use llama_sieve::sieve::{Order, Params};

/// Returns the preset named `name`, or an error if there is none. tsampler's presets are its
/// defaults and its usage patterns; Akunu's are from a table in its book. Akunu's temperature comes
/// first, and its presets have no penalty unless one is requested.
pub fn named(name: &str) -> Result<Params, String> {
    let default = Params::tsampler();
    Ok(match name {
        "tsampler" => default,
        "tsampler-creative" => Params {
            temperature: 1.2,
            top_k: 0,
            min_p: 0.02,
            penalty_repeat: 1.15,
            ..default
        },
        "tsampler-factual" => Params {
            temperature: 0.1,
            top_k: 1,
            penalty_repeat: 1.0,
            ..default
        },
        "tsampler-concise" => Params {
            temperature: 0.7,
            top_k: 20,
            top_p: 0.8,
            min_p: 0.1,
            penalty_repeat: 1.0,
            ..default
        },
        "akunu" | "akunu-factual" => akunu(0.0, 0, 1.0, 0.0),
        "akunu-balanced" => akunu(0.7, 40, 0.95, 0.05),
        "akunu-creative" => akunu(1.0, 0, 0.9, 0.0),
        "akunu-very-creative" => akunu(1.2, 0, 0.95, 0.0),
        "akunu-code" => akunu(0.2, 40, 0.95, 0.1),
        _ => {
            return Err(format!(
                "--preset {name}: there is no such preset; see --help"
            ));
        }
    })
}

/// Returns an Akunu preset. A top-k of 0 keeps 256 tokens, as in Akunu.
fn akunu(temperature: f32, top_k: i32, top_p: f32, min_p: f32) -> Params {
    Params {
        temperature,
        top_k: if top_k == 0 { 256 } else { top_k },
        top_p,
        min_p,
        penalty_repeat: 1.0,
        order: Order::TempFirst,
        ..Params::default()
    }
}
