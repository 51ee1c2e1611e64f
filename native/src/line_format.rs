//! A line's form, length and indentation: Python's `line_codes.encode_format`.

use crate::text::{
    begins_word, char_count, decode, decode_before, ends_word, find, first_chars, has_word,
    is_digit, is_space, is_word, run_end,
};

/// Python: `line_codes.FORMS`, in order.
const BLANK: u8 = 0;
const DEFINITION: u8 = 1;
const IMPORT: u8 = 2;
const COMMENT: u8 = 3;
const FAILURE: u8 = 4;
const PATH: u8 = 5;
const CLOSING: u8 = 6;
const BLOCK: u8 = 7;
const OTHER: u8 = 8;

const LOOK: usize = 120; // characters of a line that are checked
const FAILURE_START: usize = 100; // characters before a failure's word
pub const LENGTHS: usize = 5;
pub const INDENTS: usize = 4;

const PREFIXES: [&[u8]; 10] = [
    b"export", b"default", b"pub", b"public", b"private", b"protected", b"static", b"abstract",
    b"async", b"override",
];
const DEFINITIONS: [&[u8]; 18] = [
    b"def", b"class", b"func", b"fn", b"function", b"interface", b"type", b"struct", b"enum",
    b"trait", b"impl", b"module", b"const", b"let", b"var", b"describe", b"it", b"test",
];
const IMPORTS: [&[u8]; 7] =
    [b"import", b"from", b"use", b"using", b"require", b"#include", b"package"];
const COMMENTS: [&[u8]; 7] = [b"//", b"#", b"/*", b"*", b"--", b"<!--", b"\"\"\""];
const FAILURES: [&[u8]; 12] = [
    b"error", b"Error", b"ERROR", b"FAIL", b"FAILED", b"failed", b"Failed", b"failure", b"Failure",
    b"panic", b"fatal", b"Exception",
];
const UNDEFINED: &[u8] = b"undefined";
const SIGNS: [&str; 4] = ["✗", "×", "✘", "✖"];

/// Python: `encode_format(line, whole)`.
pub fn encode_format(line: &[u8], whole: &[u8]) -> u8 {
    let chars = char_count(whole);
    let length = [15, 39, 79, 159].iter().filter(|&&limit| limit < chars).count();
    let blanks = indent(line, whole);
    let set_in = [0, 4, 8].iter().filter(|&&limit| limit < blanks).count();
    (form(whole) * LENGTHS as u8 + length as u8) * INDENTS as u8 + set_in as u8
}

/// Python: `_indent(line, whole)`.
fn indent(line: &[u8], whole: &[u8]) -> usize {
    if whole.is_empty() {
        return 0;
    }
    let before = match find(line, first_chars(whole, 8)) {
        Some(at) => &line[..at],
        // Python slices up to -1: a part whose escapes are gone is not found in its line.
        None => &line[..line.len() - decode_before(line, line.len()).1],
    };
    let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t');
    before.iter().rev().take_while(is_blank).map(|&byte| if byte == b'\t' { 4 } else { 1 }).sum()
}

/// Python: `_form(whole)`.
fn form(whole: &[u8]) -> u8 {
    if whole.is_empty() {
        return BLANK;
    }
    let start = first_chars(whole, LOOK);
    if is_failure(start) {
        FAILURE
    } else if is_definition(start) {
        DEFINITION
    } else if has_word(start, &IMPORTS) {
        IMPORT
    } else if COMMENTS.iter().any(|sign| start.starts_with(sign)) {
        COMMENT
    } else if is_closing(start) {
        CLOSING
    } else if is_path(start) {
        PATH
    } else if matches!(whole.last(), Some(b'{' | b':' | b'(' | b'[')) {
        BLOCK
    } else {
        OTHER
    }
}

/// Python: the group `failure`.
fn is_failure(start: &[u8]) -> bool {
    if SIGNS.iter().any(|sign| start.starts_with(sign.as_bytes())) {
        return true;
    }
    let limit = first_chars(start, FAILURE_START).len();
    for at in 0..=limit.min(start.len().saturating_sub(1)) {
        let is_first = matches!(start[at], b'e' | b'E' | b'F' | b'f' | b'p' | b'u');
        if is_first && begins_word(start, at) {
            let rest = &start[at..];
            if has_word(rest, &FAILURES) || has_word(rest, &[UNDEFINED]) {
                return true;
            }
        }
    }
    false
}

/// Python: the group `definition`.
fn is_definition(start: &[u8]) -> bool {
    let mut rest = start;
    'prefixes: loop {
        for prefix in PREFIXES {
            if rest.starts_with(prefix) {
                let (point, size) = decode(rest, prefix.len());
                if size > 0 && is_space(point) {
                    rest = &rest[prefix.len() + size..];
                    continue 'prefixes;
                }
            }
        }
        break;
    }
    if has_word(rest, &DEFINITIONS) {
        return true;
    }
    let signs = run_end(rest, 0, usize::MAX, |point| point == 0x23);
    matches!(signs, 1..=4) && !ends_word(rest, signs)
}

/// Python: the group `closing`.
fn is_closing(start: &[u8]) -> bool {
    start.iter().all(|byte| matches!(byte, b')' | b']' | b'}' | b'>' | b';' | b','))
        || start == b"end"
        || has_word(start, &[b"else"])
}

/// Python: the group `path`.
fn is_path(start: &[u8]) -> bool {
    let token = &start[..run_end(start, 0, usize::MAX, |point| !is_space(point))];
    if is_file(token) {
        return true;
    }
    if let Some(colon) = token.iter().rposition(|&byte| byte == b':') {
        let digits = run_end(token, colon + 1, usize::MAX, is_digit);
        if digits == token.len() && digits > colon + 1 && is_file(&token[..colon]) {
            return true;
        }
    }
    let first = decode(token, 0).1;
    let inner = token.get(first..token.len().saturating_sub(1)).unwrap_or(&[]);
    inner.contains(&b'/')
}

/// Python: `(?:\S*/)?[\w.-]+\.\w{1,5}` as a whole.
fn is_file(token: &[u8]) -> bool {
    let Some(dot) = token.iter().rposition(|&byte| byte == b'.') else { return false };
    let ending = &token[dot + 1..];
    let chars = char_count(ending);
    if !(1..=5).contains(&chars) || run_end(ending, 0, 5, is_word) != ending.len() {
        return false;
    }
    let mut begin = dot;
    loop {
        let (point, size) = decode_before(token, begin);
        if size == 0 || !(is_word(point) || matches!(point, 0x2e | 0x2d)) {
            break;
        }
        begin -= size;
    }
    begin < dot && (begin == 0 || token[begin - 1] == b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let cases: [(&str, u8); 12] = [
            ("", BLANK),
            ("export default async def", DEFINITION),
            ("export async function f()", DEFINITION),
            ("##x", DEFINITION),
            ("## x", COMMENT),
            ("import os", IMPORT),
            ("}});", CLOSING),
            ("src/a.py:12", PATH),
            ("a/b c", PATH),
            ("x = f(", BLOCK),
            ("the build failed: x", FAILURE),
            ("plain text", OTHER),
        ];
        for (line, expected) in cases {
            assert_eq!(form(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn indents_count_tabs_as_four() {
        assert_eq!(indent(b"\t  x", b"x"), 6);
        assert_eq!(indent(b"12: x", b"x"), 1);
    }
}
