//! Index of the lines in results and writes: Python's `history.line_index.LineIndex`.
//!
//! The Python code compares texts; here a line is the number of its hash, which is keyed by a
//! secret of the process, so that unequal lines have unequal numbers.

use std::collections::HashMap;

use crate::hash_numbers::{push, Full, HashNumbers, UNNUMBERED};
use crate::text::{char_count, lines, unnumbered};

const MIN_LINE_CHARS: u32 = 8; // shorter lines occur everywhere
const MAX_LINE_CHARS: u32 = 2_000;
const MAX_PLACES: usize = 8; // repeats of one line that are stored
const MAX_LINES: usize = 500_000; // lines stored per conversation
const MIN_RUN_CHARS: usize = 160; // Python: `lines_shown._MIN_RUN_CHARS`
const NO_NUMBER: i32 = -1;
const NOWHERE: u32 = u32::MAX;

/// A line: the number of its text, the number that a tool put before it, and its characters.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Line {
    bare: u32, // UNNUMBERED if no indexed part has it
    number: i32,
    chars: u32, // without the tool's number
}

impl Line {
    fn is_indexed(&self) -> bool {
        (MIN_LINE_CHARS..=MAX_LINE_CHARS).contains(&self.chars)
    }
}

/// A part of the history: its lines, and where each is.
struct IndexedPart {
    lines: Vec<Line>,
    places: Option<Vec<(u32, u32)>>, // number and line, in order; computed at the first search
    is_complete: bool,
}

/// What a pass knows of an earlier part: the lines that a run in it must have; 0: none may.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Verdict {
    pub source: u32,
    pub min_lines: u32,
}

/// The outcome of a search.
pub enum Found {
    Nothing,
    /// The search stopped at a line for a part without a verdict.
    Unknown { at: usize, source: u32 },
    Run { first: usize, end: usize, source: u32 },
}

/// The range of lines that is searched, and how.
pub struct Search<'a> {
    pub lines: &'a [Line],
    pub at: usize,
    pub end: usize,
    pub before: u32, // the part's own position
    pub exact: bool,
    pub verdicts: &'a [Verdict],
    /// A part without a verdict is no source.
    pub is_restricted: bool,
}

pub struct LineIndex {
    numbers: HashNumbers,
    first: Vec<u32>,              // by number: the first part with the line
    more: HashMap<u32, Vec<u32>>, // the later parts of repeated lines
    parts: HashMap<u32, IndexedPart>,
    count: usize,
    stored: usize, // lines in all parts
}

impl LineIndex {
    pub fn new() -> Self {
        LineIndex {
            numbers: HashNumbers::new(),
            first: vec![NOWHERE],
            more: HashMap::new(),
            parts: HashMap::new(),
            count: 0,
            stored: 0,
        }
    }

    /// Approximate bytes in memory.
    pub fn size_bytes(&self) -> usize {
        let lines = self.stored * std::mem::size_of::<Line>();
        self.numbers.size_bytes() + 4 * self.first.capacity() + 64 * self.more.len() + lines
    }

    /// Python: one part in `LineIndex.extend`, and `_note`.
    pub fn add(&mut self, position: u32, text: &[u8]) -> Result<(), Full> {
        if self.count >= MAX_LINES {
            return Ok(());
        }
        let mut found = Vec::new();
        for line in lines(text) {
            let (bare, number) = parse_line(line);
            let (key, is_new) = self.numbers.number_of(self.numbers.hash(bare, 0))?;
            if is_new {
                push(&mut self.first, NOWHERE);
            }
            found.push(Line { bare: key, number, chars: count_u32(bare) });
        }
        let indexed: Vec<u32> =
            found.iter().filter(|line| line.is_indexed()).map(|line| line.bare).collect();
        let room = MAX_LINES - self.count;
        for &bare in indexed.iter().take(room) {
            let first = &mut self.first[bare as usize];
            if *first == NOWHERE {
                *first = position;
                self.count += 1;
            } else if *first != position {
                let more = self.more.entry(bare).or_default();
                if more.len() < MAX_PLACES && more.last() != Some(&position) {
                    more.push(position);
                    self.count += 1;
                }
            }
        }
        self.stored += found.len();
        let is_complete = indexed.len() <= room;
        found.shrink_to_fit();
        self.parts.insert(position, IndexedPart { lines: found, places: None, is_complete });
        Ok(())
    }

    /// Python: `LineIndex.can_occur_before`.
    pub fn can_occur_before(&self, position: u32, text: &[u8]) -> bool {
        let is_before = |bare: u32| self.first[bare as usize] < position;
        match self.parts.get(&position).filter(|part| part.is_complete) {
            Some(part) => part.lines.iter().any(|line| is_before(line.bare)),
            None => self.parse(text).iter().any(|line| line.is_indexed() && is_before(line.bare)),
        }
    }

    /// The lines of a text as the search needs them.
    pub fn parse(&self, text: &[u8]) -> Vec<Line> {
        let parse = |line| {
            let (bare, number) = parse_line(line);
            let key = self.numbers.get(self.numbers.hash(bare, 0));
            Line { bare: key, number, chars: count_u32(bare) }
        };
        lines(text).map(parse).collect()
    }

    /// Python: the loop of `lines_shown._find_runs`, up to the next run.
    pub fn next_run(&mut self, search: &Search) -> Found {
        let end = search.end.min(search.lines.len());
        let mut at = search.at;
        while at < end {
            if search.lines[at].is_indexed() {
                match self.longest_run(search, at, end) {
                    Found::Nothing => {}
                    found => return found,
                }
            }
            at += 1;
        }
        Found::Nothing
    }

    /// Python: `lines_shown._longest_run`.
    fn longest_run(&mut self, search: &Search, at: usize, end: usize) -> Found {
        let mut best: Option<(usize, u32)> = None;
        for (source, start) in self.places(search.lines[at].bare, search.before) {
            let verdict = search.verdicts.iter().find(|one| one.source == source);
            let min_lines = match verdict {
                Some(one) if one.min_lines == 0 => continue,
                Some(one) => one.min_lines as usize,
                None if search.is_restricted => continue,
                None => return Found::Unknown { at, source },
            };
            let until = self.match_end(search, at, end, source, start);
            if best.map_or(true, |one| until > one.0) && until - at >= min_lines {
                best = Some((until, source));
            }
        }
        let Some((until, source)) = best else { return Found::Nothing };
        let chars: usize = search.lines[at..until].iter().map(|line| line.chars as usize).sum();
        if chars < MIN_RUN_CHARS {
            return Found::Nothing;
        }
        Found::Run { first: at, end: until, source }
    }

    /// Python: `LineIndex.places`, by line in place of its offset.
    fn places(&mut self, bare: u32, before: u32) -> Vec<(u32, usize)> {
        let mut found = Vec::new();
        let Some(&first) = self.first.get(bare as usize) else { return found };
        if bare == UNNUMBERED || first >= before {
            return found;
        }
        let more = self.more.get(&bare).map_or(&[][..], |more| more);
        let positions: Vec<u32> =
            [first].into_iter().chain(more.iter().copied().filter(|&one| one < before)).collect();
        for position in positions {
            let Some(part) = self.parts.get_mut(&position) else { continue };
            let places = part.places.get_or_insert_with(|| places_of(&part.lines));
            let from = places.partition_point(|one| one.0 < bare);
            let same = places[from..].iter().take_while(|one| one.0 == bare);
            let room = MAX_PLACES + 1 - found.len();
            found.extend(same.take(room).map(|one| (position, one.1 as usize)));
            if found.len() > MAX_PLACES {
                break;
            }
        }
        found
    }

    /// Python: `line_index.match_end`.
    fn match_end(&self, search: &Search, at: usize, end: usize, source: u32, start: usize) -> usize {
        let Some(part) = self.parts.get(&source) else { return at };
        let pairs = search.lines[at..end].iter().zip(&part.lines[start..]).enumerate();
        for (step, (line, shown)) in pairs {
            let is_same = line.bare == shown.bare && {
                let before = match (at + step).checked_sub(1) {
                    Some(before) if !search.exact => search.lines[before].number,
                    _ => NO_NUMBER,
                };
                line.number == NO_NUMBER
                    || line.number == shown.number
                    || (before != NO_NUMBER && line.number == before + 1)
            };
            if !is_same {
                return at + step;
            }
        }
        end.min(at + part.lines.len().saturating_sub(start))
    }
}

fn places_of(lines: &[Line]) -> Vec<(u32, u32)> {
    let indexed = lines.iter().enumerate().filter(|(_, line)| line.is_indexed());
    let mut places: Vec<(u32, u32)> = indexed.map(|(at, line)| (line.bare, at as u32)).collect();
    places.sort_unstable();
    places
}

fn count_u32(text: &[u8]) -> u32 {
    char_count(text).min(u32::MAX as usize) as u32
}

/// Python: `parse_line`: a line without its number, and the number.
fn parse_line(line: &[u8]) -> (&[u8], i32) {
    let bare = unnumbered(line);
    if bare.len() == line.len() {
        return (line, NO_NUMBER); // a number has a digit at least
    }
    let digits = line.iter().skip_while(|&&byte| byte == b' ').take_while(|byte| byte.is_ascii_digit());
    (bare, digits.fold(0, |number, digit| 10 * number + i32::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(first: usize, last: usize, suffix: &str) -> String {
        let lines = (first..=last).map(|n| format!("{n:6}→the line with number {n}{suffix}"));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn numbers_are_parsed() {
        assert_eq!(parse_line("    12→return loom".as_bytes()), (&b"return loom"[..], 12));
        assert_eq!(parse_line(b"123456789: x"), (&b"123456789: x"[..], NO_NUMBER));
    }

    #[test]
    fn runs_of_earlier_lines() {
        let mut index = LineIndex::new();
        index.add(3, text(1, 40, "").as_bytes()).unwrap();
        let newer = text(10, 30, "");
        index.add(7, newer.as_bytes()).unwrap();
        assert!(index.can_occur_before(7, b"") && !index.can_occur_before(3, b""));
        let lines = index.parse(newer.as_bytes());
        let search = |verdicts, is_restricted| Search {
            lines: &lines,
            at: 1,
            end: 20,
            before: 7,
            exact: false,
            verdicts,
            is_restricted,
        };
        assert!(matches!(index.next_run(&search(&[], false)), Found::Unknown { at: 1, source: 3 }));
        assert!(matches!(index.next_run(&search(&[], true)), Found::Nothing));
        let found = index.next_run(&search(&[Verdict { source: 3, min_lines: 6 }], false));
        assert!(matches!(found, Found::Run { first: 1, end: 20, source: 3 }));
    }
}
