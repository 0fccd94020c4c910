use super::*;

/// A vocabulary in which only token 0 ends a text.
#[derive(Debug)]
struct OneEnd;

impl Vocabulary for OneEnd {
    fn n_tokens(&self) -> usize {
        4
    }

    fn is_eog(&self, token: Token) -> bool {
        token == 0
    }

    fn end_token(&self) -> Option<Token> {
        Some(0)
    }

    fn piece(&self, token: Token, piece: &mut Vec<u8>) {
        piece.push(b'a' + token as u8);
    }

    fn detokenize(&self, token: Token, text: &mut Vec<u8>) {
        self.piece(token, text);
    }

    fn tokenize(&self, _text: &[u8]) -> Vec<Token> {
        Vec::new()
    }
}

#[test]
fn ends_outweigh_where_three_times_as_many_of_them_are_more() {
    let infill = Infill::new(Arc::new(OneEnd));
    let outweigh = |end: f32, text: f32| {
        let data = [(0, end), (1, text)].map(|(id, p)| TokenData { id, logit: 0.0, p });
        infill.ends_outweigh(&data)
    };
    // Two candidates: six times 0.125 are 0.75.
    assert!(!outweigh(0.125, 0.75));
    assert!(outweigh(0.125f32.next_up(), 0.75));
}
