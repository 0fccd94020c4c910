//! Decodes bytes to code points. A character may be spread over several tokens.
//!
//! UTF-8 is read as in llama.cpp, which trusts the first byte: within one token, the following
//! bytes count as the rest of the character, whatever they are. Only the rest of a character that
//! an earlier token began must consist of continuation bytes.

/// The decoder's state between tokens: an unfinished character, or invalid bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Partial {
    /// The bits of the code point so far; 0 if no byte is missing.
    pub bits: u32,
    /// The number of missing bytes; -1 after invalid bytes.
    pub missing: i8,
}

impl Partial {
    /// The state after bytes that are not UTF-8.
    pub const INVALID: Self = Self {
        bits: 0,
        missing: -1,
    };

    /// True if bytes of a character are missing.
    pub fn is_pending(self) -> bool {
        self.missing > 0
    }

    /// Appends the bits of `rest`, which must not be longer than the number of missing bytes.
    fn with(self, rest: &[u8]) -> Self {
        let push = |bits: u32, byte: &u8| (bits << 6) + u32::from(byte & 0x3F);
        Self {
            bits: rest.iter().fold(self.bits, push),
            missing: self.missing - rest.len() as i8,
        }
    }
}

/// Returns the bytes of a piece that count: those before the first NUL.
pub fn counted(piece: &[u8]) -> &[u8] {
    piece.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Decodes `piece` from the decoder's state `start`, and writes its code points to `chars`; none if
/// it is invalid. Returns the decoder's state at its end.
pub fn decode(piece: &[u8], start: Partial, chars: &mut Vec<u32>) -> Partial {
    chars.clear();
    let mut bytes = counted(piece);
    let mut last = start;
    if start.is_pending() {
        let (rest, behind) = split(bytes, start.missing);
        if rest.iter().any(|byte| byte >> 6 != 2) {
            return Partial::INVALID;
        }
        last = start.with(rest);
        if last.is_pending() {
            return last;
        }
        chars.push(last.bits);
        (bytes, last) = (behind, Partial::default());
    }
    while let Some((&first, behind)) = bytes.split_first() {
        let Some((mask, missing)) = lead(first) else {
            chars.clear();
            return Partial::INVALID;
        };
        let bits = u32::from(first & mask);
        let (rest, behind) = split(behind, missing);
        let character = Partial { bits, missing }.with(rest);
        if character.is_pending() {
            return character;
        }
        chars.push(character.bits);
        (bytes, last) = (behind, Partial::default());
    }
    last
}

/// Decodes as [`decode`] does, but returns [`INVALID`](Partial::INVALID) unless `piece`, after
/// `start`, is valid UTF-8 up to an unfinished character at its end. `start` must come from this
/// function, too.
pub fn decode_strictly(piece: &[u8], start: Partial, chars: &mut Vec<u32>) -> Partial {
    let bytes = counted(piece);
    let (rest, behind) = split(bytes, start.missing);
    let first = rest.first().copied();
    let is_ill = match (start.missing, start.bits, first) {
        // An overlong form, a surrogate, or a number past the last code point.
        (2, 0, Some(..0xA0)) | (2, 0xD, Some(0xA0..)) => true,
        (3, 0, Some(..0x90)) | (3, 4, Some(0x90..)) | (3, 5.., _) => true,
        _ => !begins_a_text(behind),
    };
    if is_ill {
        chars.clear();
        return Partial::INVALID;
    }
    decode(piece, start, chars)
}

/// True if bytes are valid UTF-8, or a prefix of valid UTF-8.
pub fn begins_a_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).map_or_else(|error| error.error_len().is_none(), |_| true)
}

/// Returns the next `n` bytes, or fewer at the end, and the rest.
fn split(bytes: &[u8], n: i8) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.len().min(usize::try_from(n).unwrap_or(0)))
}

/// Returns the mask of the code point's bits in a first byte, and the number of bytes that follow
/// it; `None` for a byte that cannot be first.
pub fn lead(byte: u8) -> Option<(u8, i8)> {
    match byte {
        0..0x80 => Some((0x7F, 0)),
        0x80..0xC0 => None,
        0xC0..0xE0 => Some((0x3F, 1)),
        0xE0..0xF0 => Some((0x1F, 2)),
        0xF0.. => Some((0x0F, 3)),
    }
}

#[cfg(test)]
mod tests;
