//! Identifiers in a line: names, paths and numbers, and those inside them.
//!
//! Mirrors `respool.forecast.mentions`. Candidates are ASCII, so bytes are characters here.

use crate::text::{self, MAX_LINE_CHARS};

const MIN_CHARS: usize = 5;
/// Sorts of words (Python: `line_codes.WHOLE, NAME, PATH, FIGURE`).
pub const WHOLE: u8 = 0;
pub const NAME: u8 = 1;
pub const PATH: u8 = 2;
pub const FIGURE: u8 = 3;

fn is_candidate(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/' | b':' | b'@' | b'\\' | b'-')
}

fn is_edge(byte: u8) -> bool {
    matches!(byte, b'.' | b':' | b'/' | b'-')
}

/// Python: `_IDENTIFIER.findall(line, 0, _searched_length(line))`.
pub fn candidates(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    text::first_chars(line, MAX_LINE_CHARS)
        .split(|&byte| !is_candidate(byte))
        .filter(|one| one.len() >= MIN_CHARS)
}

/// Python: `_IDENTIFIER.findall` on a text of several lines, which is searched completely.
pub fn all_candidates(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| !is_candidate(byte)).filter(|one| one.len() >= MIN_CHARS)
}

/// Call back for each of Python's `identifiers_of(raw)`, in order.
pub fn for_each_identifier<'a>(raw: &'a [u8], mut found: impl FnMut(&'a [u8])) {
    if is_plain_word(raw) {
        return;
    }
    let atom = strip_edges(raw);
    if atom.len() < MIN_CHARS || !is_telling(atom) {
        return;
    }
    found(atom);
    let mut inner = |one: &'a [u8]| {
        let piece = strip_edges(one);
        if piece.len() >= MIN_CHARS && piece != atom && is_telling(piece) {
            found(piece);
        }
    };
    if atom.contains(&b':') {
        atom.split(|&byte| byte == b':').for_each(inner);
    } else if !atom.contains(&b'/') {
        if let Some(dot) = atom.iter().rposition(|&byte| byte == b'.') {
            inner(&atom[dot + 1..]);
        }
    }
}

/// Python: `raw.isalpha() and (raw.islower() or raw[1:].islower())`.
fn is_plain_word(raw: &[u8]) -> bool {
    raw.first().is_some_and(u8::is_ascii_alphabetic) && raw[1..].iter().all(u8::is_ascii_lowercase)
}

/// Python: `raw.strip(_EDGES)`.
fn strip_edges(raw: &[u8]) -> &[u8] {
    let Some(first) = raw.iter().position(|&byte| !is_edge(byte)) else { return &[] };
    let last = raw.iter().rposition(|&byte| !is_edge(byte)).unwrap_or(first);
    &raw[first..=last]
}

/// Python: `_TELLING.search(atom)`.
fn is_telling(atom: &[u8]) -> bool {
    let mut before_is_lower = false;
    for &byte in atom {
        if !byte.is_ascii_alphabetic() || (before_is_lower && byte.is_ascii_uppercase()) {
            return true; // of a candidate's characters, all but letters tell
        }
        before_is_lower = byte.is_ascii_lowercase();
    }
    false
}

/// Python: `_identifier_sort(atom)`; a file's name may have any letters.
pub fn sort_of(atom: &[u8]) -> u8 {
    let is_figure =
        |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'.' | b':' | b'x' | b'-');
    if atom.iter().all(is_figure) || is_decimal(atom) {
        return FIGURE;
    }
    let is_path = || {
        let dot = atom.iter().rposition(|&byte| byte == b'.')?;
        let ending = &atom[dot + 1..];
        Some(matches!(ending.len(), 1..=5) && ending.iter().all(u8::is_ascii_alphabetic))
    };
    if atom.contains(&b'/') || is_path().unwrap_or(false) {
        PATH
    } else {
        NAME
    }
}

/// Python: `atom.isdecimal()`.
fn is_decimal(atom: &[u8]) -> bool {
    !atom.is_empty() && text::run_end(atom, 0, usize::MAX, text::is_digit) == atom.len()
}

/// Python: `_is_timing(atom)`.
pub fn is_timing(atom: &[u8]) -> bool {
    let (first, size) = text::decode(atom, 0);
    if !text::is_digit(first) {
        return false;
    }
    let is_figure = |one: u32| text::is_digit(one) || matches!(one, 0x2e | 0x3a | 0x2d);
    let end = text::run_end(atom, size, usize::MAX, is_figure);
    let rest = &atom[end..];
    rest.len() <= 3 && rest.iter().all(u8::is_ascii_alphabetic)
}

/// Python: `_FILE.findall(whole)`: the last parts of paths.
pub fn for_each_file(whole: &[u8], mut found: impl FnMut(&[u8])) {
    let is_inner = |one: u32| text::is_word(one) || matches!(one, 0x40 | 0x2e | 0x2d);
    let mut at = 0;
    while let Some(slash) = whole[at..].iter().position(|&byte| byte == b'/') {
        let start = at + slash + 1;
        let end = text::run_end(whole, start, usize::MAX, is_inner);
        let name = &whole[start..end];
        let ends = name.first() != Some(&b'.') && name.last() != Some(&b'.');
        if ends && whole.get(end) != Some(&b'/') && text::is_longer(name, 1) {
            found(name);
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identifiers(line: &str) -> Vec<String> {
        let mut found = Vec::new();
        for raw in candidates(line.as_bytes()) {
            for_each_identifier(raw, |one| found.push(String::from_utf8_lossy(one).into_owned()));
        }
        found
    }

    #[test]
    fn names_in_names() {
        let expected = ["pkg/io.go:12", "pkg/io.go", "text.ReadAllLines", "ReadAllLines"];
        assert_eq!(identifiers("see pkg/io.go:12: calls text.ReadAllLines"), expected);
        assert!(identifiers("Plain words without anything").is_empty());
    }

    #[test]
    fn sorts() {
        assert_eq!([sort_of(b"12.5"), sort_of(b"a/b_c"), sort_of(b"io.go"), sort_of(b"x_y")], [
            FIGURE, PATH, PATH, NAME
        ]);
        assert!(is_timing(b"12.5s") && !is_timing(b"12.5secs") && !is_timing(b"x1"));
    }

    #[test]
    fn files_of_paths() {
        let mut found = Vec::new();
        for_each_file(b"a/bc.py b/cd/ /x /.ef /g.h.", |one| found.push(one.to_vec()));
        assert_eq!(found, [b"bc.py".to_vec()]);
    }
}
