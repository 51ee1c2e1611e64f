//! Text as Python sees it: code points, character classes, stripping, and lines.
//!
//! A text is UTF-8 in which a lone surrogate is encoded like any other code point (Python's
//! `surrogatepass`). Bytes that are neither are read as one character each; nothing here panics.

use std::borrow::Cow;
use std::sync::OnceLock;

/// Python: `line_parts.LONG_LINE_CHARS`, `line_parts._MIN_PART_CHARS`.
pub const LONG_LINE_CHARS: usize = 600;
const MIN_PART_CHARS: usize = 60;
/// Python: `mentions._MAX_LINE_CHARS`.
pub const MAX_LINE_CHARS: usize = 4_000;
/// Code points above this are neither letters nor digits.
const CLASSIFIED: usize = 0x4_0000;

/// The code points that `\w` and `\d` match in the interpreter that loaded the library.
struct Classes {
    word: Vec<u64>,
    digit: Vec<u64>,
}

static CLASSES: OnceLock<Classes> = OnceLock::new();

/// Set the classes from ranges (first, last) of code points; only the first call counts.
pub fn set_classes(word: &[u32], digit: &[u32]) {
    let _ = CLASSES.set(Classes { word: bitmap(word), digit: bitmap(digit) });
}

fn bitmap(ranges: &[u32]) -> Vec<u64> {
    let mut found = vec![0u64; CLASSIFIED / 64];
    for range in ranges.chunks_exact(2) {
        for point in range[0] as usize..=(range[1] as usize).min(CLASSIFIED - 1) {
            found[point / 64] |= 1 << (point % 64);
        }
    }
    found
}

fn is_in(map: &[u64], point: u32) -> bool {
    map.get(point as usize / 64).is_some_and(|bits| bits >> (point % 64) & 1 == 1)
}

/// Python: `\w`.
pub fn is_word(point: u32) -> bool {
    if point < 128 {
        let byte = point as u8;
        return byte.is_ascii_alphanumeric() || byte == b'_';
    }
    match CLASSES.get() {
        Some(classes) => is_in(&classes.word, point),
        None => char::from_u32(point).is_some_and(char::is_alphanumeric),
    }
}

/// Python: `\d`, and `str.isdecimal`.
pub fn is_digit(point: u32) -> bool {
    if point < 128 {
        return (point as u8).is_ascii_digit();
    }
    CLASSES.get().is_some_and(|classes| is_in(&classes.digit, point))
}

/// Python: `\s`, and what `str.strip` removes.
pub fn is_space(point: u32) -> bool {
    matches!(
        point,
        0x09..=0x0d | 0x1c..=0x20 | 0x85 | 0xa0 | 0x1680 | 0x2000..=0x200a | 0x2028 | 0x2029
            | 0x202f | 0x205f | 0x3000
    )
}

/// The code point at an offset, and its bytes; (0, 0) at the end.
pub fn decode(text: &[u8], at: usize) -> (u32, usize) {
    let Some(&first) = text.get(at) else { return (0, 0) };
    if first < 0x80 {
        return (u32::from(first), 1);
    }
    let size = match first {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return (u32::from(first), 1),
    };
    let Some(rest) = text.get(at + 1..at + size) else { return (u32::from(first), 1) };
    let mut point = u32::from(first) & (0x7f >> size);
    for &byte in rest {
        if byte & 0xc0 != 0x80 {
            return (u32::from(first), 1);
        }
        point = point << 6 | u32::from(byte & 0x3f);
    }
    (point, size)
}

/// The code point that ends at an offset, and its bytes; (0, 0) at the start.
pub fn decode_before(text: &[u8], end: usize) -> (u32, usize) {
    if end == 0 || end > text.len() {
        return (0, 0);
    }
    let mut at = end - 1;
    while at > 0 && end - at < 4 && text[at] & 0xc0 == 0x80 {
        at -= 1;
    }
    let (point, size) = decode(text, at);
    if at + size == end {
        (point, size)
    } else {
        (u32::from(text[end - 1]), 1)
    }
}

/// Python: `len`.
pub fn char_count(text: &[u8]) -> usize {
    count_bytes(text, |byte| byte & 0xc0 != 0x80)
}

/// The number of bytes of a kind, in sums small enough for a byte each: the compiler makes vectors.
fn count_bytes(text: &[u8], is_one: impl Fn(u8) -> bool + Copy) -> usize {
    let sum = |block: &[u8]| block.iter().fold(0u8, |sum, &byte| sum + u8::from(is_one(byte)));
    text.chunks(255).map(|block| usize::from(sum(block))).sum()
}

/// Return whether a text has more than so many characters.
pub fn is_longer(text: &[u8], chars: usize) -> bool {
    const MAX_BYTES: usize = 4; // of a character
    text.len() > chars && (text.len() > MAX_BYTES * chars || char_count(text) > chars)
}

/// Python: `text[:chars]`.
pub fn first_chars(text: &[u8], chars: usize) -> &[u8] {
    if text.len() <= chars {
        return text;
    }
    let mut left = chars;
    for (at, &byte) in text.iter().enumerate() {
        if byte & 0xc0 != 0x80 {
            if left == 0 {
                return &text[..at];
            }
            left -= 1;
        }
    }
    text
}

/// Python: `str.lstrip`.
pub fn trim_start(text: &[u8]) -> &[u8] {
    let mut at = 0;
    loop {
        let (point, size) = decode(text, at);
        if size == 0 || !is_space(point) {
            return &text[at..];
        }
        at += size;
    }
}

/// Python: `str.rstrip`.
pub fn trim_end(text: &[u8]) -> &[u8] {
    let mut end = text.len();
    loop {
        let (point, size) = decode_before(text, end);
        if size == 0 || !is_space(point) {
            return &text[..end];
        }
        end -= size;
    }
}

/// Python: `str.strip`.
pub fn trim(text: &[u8]) -> &[u8] {
    trim_end(trim_start(text))
}

/// Python: `text.find(some)`, eight places at a time.
pub fn find(text: &[u8], some: &[u8]) -> Option<usize> {
    let Some((&first, rest)) = some.split_first() else { return Some(0) };
    let end = text.len().checked_sub(rest.len())?; // behind the last place
    let second = rest.first().copied();
    let is_there = |at: usize| at < end && text[at..].starts_with(some);
    let mut at = 0;
    while at + 9 <= text.len() && at < end {
        let mut found = equal_bytes(load(text, at), first);
        if let Some(second) = second {
            found &= equal_bytes(load(text, at + 1), second);
        }
        while found != 0 {
            let place = at + found.trailing_zeros() as usize / 8;
            if is_there(place) {
                return Some(place);
            }
            found &= found - 1;
        }
        at += 8;
    }
    (at..end).find(|&at| is_there(at))
}

/// Eight bytes from an offset on.
fn load(text: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&text[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// Flags at the bytes that equal this one; those before the first equal one are never set.
fn equal_bytes(bytes: u64, one: u8) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    let differs = bytes ^ (ONES * u64::from(one));
    differs.wrapping_sub(ONES) & !differs & HIGH
}

/// The end of the run of characters of a class from an offset on, at most so many.
pub fn run_end(text: &[u8], at: usize, limit: usize, is_one: impl Fn(u32) -> bool) -> usize {
    let mut end = at;
    for _ in 0..limit {
        let (point, size) = decode(text, end);
        if size == 0 || !is_one(point) {
            break;
        }
        end += size;
    }
    end
}

/// Python: `\b` behind the word that ends here.
pub fn ends_word(text: &[u8], at: usize) -> bool {
    let (point, size) = decode(text, at);
    size == 0 || !is_word(point)
}

/// Python: `\b` before the word that begins here.
pub fn begins_word(text: &[u8], at: usize) -> bool {
    let (point, size) = decode_before(text, at);
    size == 0 || !is_word(point)
}

/// Return whether one of these words begins here and ends with it (`(?:a|b)\b`).
pub fn has_word(text: &[u8], words: &[&[u8]]) -> bool {
    words.iter().any(|word| text.starts_with(word) && ends_word(text, word.len()))
}

/// Python: `text.split("\n")`.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = find_line_break(text);
        rest = end.map(|end| &text[end + 1..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

/// Python: `text.find("\n")`, eight bytes at a time.
pub fn find_line_break(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at + 8 <= text.len() {
        let found = equal_bytes(load(text, at), b'\n');
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    text[at..].iter().position(|&byte| byte == b'\n').map(|end| at + end)
}

/// Python: `line_parts.split_lines`.
pub fn split_lines(text: &[u8]) -> Vec<&[u8]> {
    let found: Vec<&[u8]> = lines(text).collect();
    if !found.iter().any(|line| is_longer(line, LONG_LINE_CHARS)) {
        return found;
    }
    let mut parts = Vec::with_capacity(found.len());
    for line in found {
        if is_longer(line, LONG_LINE_CHARS) {
            split_line(line, &mut parts);
        } else {
            parts.push(line);
        }
    }
    parts
}

/// Python: `line_parts._split_line`.
fn split_line<'a>(line: &'a [u8], parts: &mut Vec<&'a [u8]>) {
    let (mut start, mut at) = (0, 0);
    while at < line.len() {
        let (size, is_line_end) = match_break(line, at);
        if size == 0 {
            // Behind a run of backslashes that ends no line, none can begin.
            at += run_end(line, at, usize::MAX, |point| point == 0x5c).saturating_sub(at).max(1);
            continue;
        }
        at += size;
        if at < line.len() && (is_line_end || char_count(&line[start..at]) >= MIN_PART_CHARS) {
            parts.push(&line[start..at]);
            start = at;
        }
    }
    parts.push(&line[start..]);
}

/// Python: `line_parts._BREAK` at an offset: the bytes it matches, and if it is a line's end.
fn match_break(line: &[u8], at: usize) -> (usize, bool) {
    let next = line.get(at + 1).copied().unwrap_or(0);
    match line[at] {
        b'\\' => {
            let is_first = at == 0 || line[at - 1] != b'\\';
            let run = line[at..].iter().take_while(|&&byte| byte == b'\\').count();
            let is_end = is_first && run % 2 == 1 && line.get(at + run) == Some(&b'n');
            (if is_end { run + 1 } else { 0 }, true)
        }
        b',' => {
            let (point, size) = decode(line, at + 1);
            let begins = at + 1 + if size > 0 && is_space(point) { size } else { 0 };
            let is_member = matches!(line.get(begins), Some(b'"' | b'{' | b'['));
            (usize::from(is_member), false)
        }
        b'.' | b'!' | b'?' if next == b' ' => (2, false),
        b';' if next == b' ' => (2, false),
        b';' | b'}' if next.is_ascii_alphabetic() || matches!(next, b'_' | b'$' | b'}') => {
            (1, false)
        }
        _ => (0, false),
    }
}

/// Python: `line_parts.has_parts`.
pub fn has_parts(text: &[u8], line_count: usize) -> bool {
    line_count != 1 + count_bytes(text, |byte| byte == b'\n') && is_longer(text, LONG_LINE_CHARS)
}

/// Python: `line_parts.unescape`.
pub fn unescape(part: &[u8]) -> Cow<'_, [u8]> {
    let plain = part.strip_suffix(b"\\n").unwrap_or(part);
    if !plain.contains(&b'\\') {
        return Cow::Borrowed(plain);
    }
    let mut found = Vec::with_capacity(plain.len());
    let mut at = 0;
    while at < plain.len() {
        let sign = plain.get(at + 1).copied().unwrap_or(0);
        if plain[at] == b'\\' && matches!(sign, b'"' | b'\\' | b'/' | b't') {
            found.push(if sign == b't' { b'\t' } else { sign });
            at += 2;
        } else {
            found.push(plain[at]);
            at += 1;
        }
    }
    Cow::Owned(found)
}

/// Python: `mentions.strip_prefix`.
pub fn strip_prefix(line: &[u8]) -> &[u8] {
    let line = first_chars(line, MAX_LINE_CHARS);
    trim(&line[prefix_size(line)..])
}

/// The bytes that Python's `mentions._PLACED` matches at the start of a line.
fn prefix_size(line: &[u8]) -> usize {
    let blanks = run_end(line, 0, 6, |point| point == 0x20);
    let digits = run_end(line, blanks, 7, is_digit);
    if digits > blanks {
        let size = separator_size(&line[digits..]);
        if size > 0 {
            return digits + size;
        }
    }
    let (first, _) = decode(line, 0);
    if is_digit(first) {
        return 0;
    }
    let name = run_end(line, 0, 200, |point| !is_space(point) && point != 0x3a);
    if name == 0 || line.get(name) != Some(&b':') {
        return 0;
    }
    let number = run_end(line, name + 1, 7, is_digit);
    if number == name + 1 || !matches!(line.get(number), Some(b':' | b'-')) {
        return 0;
    }
    number + 1 + usize::from(line.get(number + 1) == Some(&b' '))
}

/// Python: `(?:→|\t|: ?|\| ?)`.
pub fn separator_size(rest: &[u8]) -> usize {
    match rest.first() {
        Some(b'\t') => 1,
        Some(b':' | b'|') => 1 + usize::from(rest.get(1) == Some(&b' ')),
        Some(0xe2) if rest.starts_with("→".as_bytes()) => 3,
        _ => 0,
    }
}

/// Python: `mentions.strip_prefixes`.
pub fn strip_prefixes<'a>(text: &'a [u8], split: &[&'a [u8]]) -> Vec<Cow<'a, [u8]>> {
    if has_parts(text, split.len()) {
        return split.iter().map(|line| stripped(unescape(line))).collect();
    }
    if has_long_line(split) {
        return split.iter().map(|line| Cow::Borrowed(strip_prefix(line))).collect();
    }
    // Lines that are not long stand as they are; the text is split again as in Python, where
    // `split` may be another text's lines.
    lines(text).map(|line| Cow::Borrowed(strip_prefix(line))).collect()
}

fn stripped(line: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    match line {
        Cow::Borrowed(line) => Cow::Borrowed(strip_prefix(line)),
        Cow::Owned(line) => Cow::Owned(strip_prefix(&line).to_vec()),
    }
}

/// Python: `mentions._has_long_line`; a line is no longer than its text.
pub fn has_long_line(split: &[&[u8]]) -> bool {
    split.iter().any(|line| is_longer(line, MAX_LINE_CHARS))
}

/// Python: `failures.strip_color`.
pub fn strip_color(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&0x1b) {
        return Cow::Borrowed(text);
    }
    let mut found = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let size = if text[at] == 0x1b { color_size(&text[at..]) } else { 0 };
        if size == 0 {
            found.push(text[at]);
            at += 1;
        }
        at += size;
    }
    Cow::Owned(found)
}

/// The bytes of Python's `failures._COLOR` (`\x1b\[[0-9;:]{0,30}[mK]`).
fn color_size(text: &[u8]) -> usize {
    if text.get(1) != Some(&b'[') {
        return 0;
    }
    let end = run_end(text, 2, 30, |point| matches!(point, 0x30..=0x3b));
    if matches!(text.get(end), Some(b'm' | b'K')) {
        end + 1
    } else {
        0
    }
}

/// Python: `line_index.unnumbered_lines`, for one line.
pub fn unnumbered(line: &[u8]) -> &[u8] {
    let blanks = run_end(line, 0, 8, |point| point == 0x20);
    let digits = run_end(line, blanks, 8, |point| matches!(point, 0x30..=0x39));
    let size = if digits > blanks { separator_size(&line[digits..]) } else { 0 };
    if size > 0 {
        &line[digits + size..]
    } else {
        line
    }
}

/// Python's `sum` of floats: compensated from 3.12 on.
pub fn sum(values: impl Iterator<Item = f64>, compensated: bool) -> f64 {
    if !compensated {
        return values.fold(0.0, |total, one| total + one);
    }
    let (mut total, mut lost) = (0.0f64, 0.0f64);
    for one in values {
        let next = total + one;
        lost += if total.abs() >= one.abs() { (total - next) + one } else { (one - next) + total };
        total = next;
    }
    if lost != 0.0 && lost.is_finite() {
        total + lost
    } else {
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surrogates_and_broken_bytes_are_characters() {
        assert_eq!(decode("→".as_bytes(), 0), (0x2192, 3));
        assert_eq!(decode(&[0xed, 0xa0, 0x80], 0), (0xd800, 3));
        assert_eq!(decode(&[0xff, 0x41], 0), (0xff, 1));
        assert_eq!(decode(&[0xe2, 0x86], 0), (0xe2, 1));
        assert_eq!(decode_before(&[0x41, 0xed, 0xa0, 0x80], 4), (0xd800, 3));
        assert_eq!(trim("\u{3000} a\u{1f}".as_bytes()), b"a");
    }

    #[test]
    fn texts_are_found() {
        let text = "weaves a → warp\u{100a}of\nweft and warp threads".as_bytes();
        for start in 0..text.len() {
            for end in start..text.len() {
                let some = &text[start..end];
                let first = (0..text.len()).find(|&at| text[at..].starts_with(some));
                assert_eq!(find(text, some), first);
            }
            assert_eq!(find_line_break(&text[start..]), find(&text[start..], b"\n"));
        }
        assert_eq!(find(b"weave", b"weaver"), None);
        assert_eq!(find(b"\x01\n\x0b\n\x0b\n\x0a\x0c", b"\n\x0a"), Some(5));
    }

    #[test]
    fn prefixes_of_tools_go() {
        let cases: [(&str, &str); 6] = [
            ("   12→  return x", "return x"),
            ("src/a.py:7:import os", "import os"),
            ("7| a", "a"),
            ("12345678:a", "12345678:a"),
            ("a b:7:c", "a b:7:c"),
            ("x:1-", ""),
        ];
        for (line, rest) in cases {
            assert_eq!(strip_prefix(line.as_bytes()), rest.as_bytes(), "{line}");
        }
    }

    #[test]
    fn long_lines_are_split() {
        let text = format!("{{\"out\": \"{}\"}}", "one\\n".repeat(200));
        let parts = split_lines(text.as_bytes());
        assert_eq!(parts[parts.len() - 2..], [&b"one\\n"[..], &b"\"}"[..]]);
        assert_eq!(&*unescape(br#"say(\"hi\")\n"#), br#"say("hi")"#);
    }

    #[test]
    fn sums_as_python() {
        let values = [1e16, 1.0, -1e16];
        assert_eq!(sum(values.into_iter(), false), 0.0);
        assert_eq!(sum(values.into_iter(), true), 1.0);
    }
}
