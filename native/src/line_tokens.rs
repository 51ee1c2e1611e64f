//! Tokens of cut texts by line: Python's `tokens.LineTokens.count_cut`.

use crate::fast_hash::FastMap;
use crate::text::{decode, find_line_break, is_space, run_end};

/// Add up the tokens of a text's pieces that the original has, and write where the others are.
///
/// Returns the sum, and the number of the others; `unknown` takes the first byte and the end of
/// each. None: it has no place for all. `tokens` are those of the original's pieces. The end of a
/// text is no piece of the original, for it has no line break.
pub fn count_known(
    original: &[u8],
    tokens: &[u32],
    text: &[u8],
    unknown: &mut [u32],
) -> Option<(u64, usize)> {
    let mut sources = Sources::new(original, tokens);
    let (mut total, mut start, mut count) = (0, 0, 0);
    loop {
        let end = piece_end(text, start);
        match end.and_then(|end| sources.tokens_of(&text[start..end])) {
            Some(found) => total += u64::from(found),
            None => {
                let until = end.unwrap_or(text.len());
                let span = unknown.get_mut(2 * count..2 * count + 2)?;
                span.copy_from_slice(&[u32::try_from(start).ok()?, u32::try_from(until).ok()?]);
                count += 1;
            }
        }
        match end {
            Some(end) => start = end,
            None => return Some((total, count)),
        }
    }
}

/// The end of the piece that begins here, with its line break; None behind the last such piece.
///
/// Python: `_TOKEN_END` (`\n(?=[^\s/]|[ \t]+\S)`).
fn piece_end(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        at += find_line_break(&text[at..])? + 1;
        let (first, size) = decode(text, at);
        let is_end = if matches!(first, 0x20 | 0x09) {
            let (after, size) = decode(text, run_end(text, at, usize::MAX, |one| matches!(one, 0x20 | 0x09)));
            size > 0 && !is_space(after)
        } else {
            size > 0 && first != 0x2f && !is_space(first)
        };
        if is_end {
            return Some(at);
        }
    }
}

/// The pieces of the original, which a cut text has in their order, as a rule.
struct Sources<'a> {
    original: &'a [u8],
    tokens: &'a [u32],
    next: usize, // the number of the piece that is expected
    start: usize,
    end: Option<usize>,
    index: Option<PieceIndex<'a>>, // made for the first piece that is not in order
}

struct PieceIndex<'a> {
    ends: Vec<usize>,
    by_text: FastMap<&'a [u8], usize>,
}

impl<'a> Sources<'a> {
    fn new(original: &'a [u8], tokens: &'a [u32]) -> Self {
        let end = piece_end(original, 0);
        Sources { original, tokens, next: 0, start: 0, end, index: None }
    }

    fn tokens_of(&mut self, piece: &[u8]) -> Option<u32> {
        let is_next = self.end.is_some_and(|end| &self.original[self.start..end] == piece);
        if !is_next {
            let (original, count) = (self.original, self.tokens.len());
            let index = self.index.get_or_insert_with(|| PieceIndex::new(original, count));
            self.next = *index.by_text.get(piece)?;
            self.start = index.ends[self.next] - piece.len();
        }
        let found = *self.tokens.get(self.next)?;
        self.next += 1;
        self.start += piece.len();
        self.end = match &self.index {
            Some(index) => index.ends.get(self.next).copied(),
            None => piece_end(self.original, self.start),
        };
        Some(found)
    }
}

impl<'a> PieceIndex<'a> {
    fn new(text: &'a [u8], count: usize) -> Self {
        let mut found = PieceIndex { ends: Vec::new(), by_text: FastMap::default() };
        let mut start = 0;
        for number in 0..count {
            let Some(end) = piece_end(text, start) else { break };
            found.by_text.entry(&text[start..end]).or_insert(number);
            found.ends.push(end);
            start = end;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_before_words_and_indents() {
        let text = "a\n\n  \n  b\n/c\n\t/d\n\u{a0}e\nf".as_bytes();
        let mut ends = Vec::new();
        let mut start = 0;
        while let Some(end) = piece_end(text, start) {
            ends.push(std::str::from_utf8(&text[start..end]).unwrap());
            start = end;
        }
        assert_eq!(ends, ["a\n\n  \n", "  b\n/c\n", "\t/d\n\u{a0}e\n"]);
    }

    #[test]
    fn what_the_original_lacks_is_unknown() {
        let original = b"one\ntwo\nthree\ntwo\nfour\nend";
        let tokens = [1, 20, 300, 20, 4_000];
        let mut unknown = [0; 8];
        let count = |text: &[u8], unknown: &mut [u32]| count_known(original, &tokens, text, unknown);
        assert_eq!(count(b"one\n[gap]\nthree\ntwo\nfo", &mut unknown), Some((321, 2)));
        assert_eq!(unknown[..4], [4, 10, 20, 22]);
        assert_eq!(count(b"two\nfour\none\nx", &mut unknown), Some((4_021, 1)));
        assert_eq!(count(b"a\nb\nc", &mut unknown[..2]), None);
        assert_eq!(count(b"", &mut unknown), Some((0, 1)));
    }
}
