//! The lines of a result to keep: Python's `forecast.line_selection.select_lines`.

use std::borrow::Cow;
use std::cell::OnceCell;

use crate::index::{unique_bins_of, Index, IndexedResult, OwnName};
use crate::line_format::{INDENTS, LENGTHS};
use crate::text::{
    char_count, decode_before, find, has_parts, is_json, is_longer, is_word, json_parts,
    lines as text_lines, split_lines, sum, trim, trim_start, unescape, JsonPart, LONG_LINE_CHARS,
};
use crate::text_blocks::{keep_blocks, text_blocks, Layout, TextBlock};

const TOKEN: f64 = 4.0; // approximate characters
const SHORT_RUN: usize = 80; // characters; a hole in place of fewer would save almost nothing
const MIN_SIZE: f64 = 7.0; // minimum characters of a listed name
const MAX_NAMES: usize = 12; // names listed per hole
const MAX_LOOKUPS: usize = 200; // names per result that are looked up in the text that stays
const ENDING: usize = 2; // lines at the end of a run that report its outcome
const NEED_FACTOR: f64 = 3.0;
const ROUNDING: f64 = 1e-9; // a worth that no rounding hides
const WRAPPED: f64 = 0.7; // share of a text that is one string of JSON
const LISTED_RATIO: f64 = 0.1; // of the need for names that are listed
const DEFINITION: usize = 1; // a form
const FAILURE: usize = 4; // a form
const HEADINGS: [&[u8]; 4] = [b"# ", b"## ", b"### ", b"#### "];

const KEPT: u8 = 1;
const REMOVED_BEFORE: u8 = 2;

/// A result, and what is known of it.
pub struct Request<'a> {
    pub text: &'a [u8],
    pub formats: &'a [u8],
    /// Turns that will need each line: as such, and for its names.
    pub whole: &'a [f64],
    pub names: &'a [f64],
    /// By line: not 0 if an earlier cut removed it. Empty: none.
    pub gone_before: &'a [u8],
    pub rate: f64,
    pub lists_names: bool,
    pub keeps_outline: bool,
    pub is_run: bool,
    pub in_prose: bool,
    pub layout: Layout,
    /// Lines of the frame's head and note.
    pub head_lines: usize,
    pub note_lines: usize,
    /// `sum` is compensated.
    pub compensated: bool,
}

/// The remaining text, and what is gone.
pub struct Selected {
    pub text: Vec<u8>,
    pub removed: Vec<u32>,
    pub total: usize,
    pub risk: f64,
    pub are_parts: bool,
}

/// Python: `select_lines`; None if all lines stay, or if the request does not fit together.
pub fn select_lines(index: &Index, result: &IndexedResult, asked: &Request) -> Option<Selected> {
    let lines = split_lines(asked.text);
    let count = lines.len();
    let fits = [asked.formats.len(), asked.whole.len(), asked.names.len(), result.lines];
    let gone = asked.gone_before.len();
    if fits.iter().any(|&one| one != count) || !(gone == 0 || gone == count) {
        return None;
    }
    let are_parts = has_parts(asked.text, count);
    let plain: Vec<Cow<[u8]>> = if are_parts {
        lines.iter().map(|line| unescape(line)).collect()
    } else {
        lines.iter().map(|line| Cow::Borrowed(*line)).collect()
    };
    let sizes = lines.iter().map(|line| char_count(line)).collect();
    let json = if are_parts { places_in_json(asked.text) } else { vec![None; count] };
    let selection = Selection { index, result, asked, lines, plain, sizes, json, are_parts };
    selection.run()
}

struct Selection<'a> {
    index: &'a Index,
    result: &'a IndexedResult,
    asked: &'a Request<'a>,
    lines: Vec<&'a [u8]>,
    plain: Vec<Cow<'a, [u8]>>, // without escapes
    sizes: Vec<usize>,         // characters
    json: Vec<Option<JsonPart>>,
    are_parts: bool,
}

/// Python: `SplitText.json`, of a text with parts.
fn places_in_json(text: &[u8]) -> Vec<Option<JsonPart>> {
    let mut found = Vec::new();
    for line in text_lines(text) {
        if !is_longer(line, LONG_LINE_CHARS) {
            found.push(None);
        } else if is_json(line) {
            found.extend(json_parts(line).into_iter().map(Some));
        } else {
            found.extend(vec![None; split_lines(line).len()]);
        }
    }
    found
}

impl Selection<'_> {
    fn run(&self) -> Option<Selected> {
        let (first, last) = self.frame_lines();
        let mut stays = self.fixed_lines(first, last);
        let names = self.lines_with_names(&stays);
        self.keep_needed(&mut stays, &names, first, last);
        for (line, stay) in stays.iter_mut().enumerate() {
            if self.is_gone(line) {
                *stay = 0;
            }
        }
        let ends_empty = self.lines.last().is_some_and(|line| line.is_empty());
        if let Some(stay) = stays.last_mut().filter(|_| ends_empty) {
            *stay = KEPT; // the text ends there
        }
        self.fill_short_runs(&mut stays);
        self.cut(&stays, &names, self.lines.len() - usize::from(ends_empty))
    }

    fn is_gone(&self, line: usize) -> bool {
        self.asked.gone_before.get(line).is_some_and(|&gone| gone != 0)
    }

    /// Python: `_frame_lines`.
    fn frame_lines(&self) -> (usize, usize) {
        let count = self.lines.len();
        let (before, behind) = self.wrapping();
        let mut first = self.asked.head_lines.saturating_sub(1).max(before);
        let mut last = count.saturating_sub(self.asked.note_lines.max(behind));
        // Python: `_is_log`.
        if self.asked.is_run && !self.is_json() && self.layout(&self.lines) != Layout::Prose {
            first = first.max(before + 1);
            let before = if last == 0 { count - 1 } else { last - 1 };
            let is_empty = self.lines[before].is_empty();
            last = self.start_of_ending(last.saturating_sub(usize::from(is_empty)));
        }
        (first, last)
    }

    /// Python: `SplitText.is_json`.
    fn is_json(&self) -> bool {
        let first = self.asked.head_lines.saturating_sub(1);
        self.json.get(first).is_some_and(Option::is_some) && self.wrapping() == (0, 0)
    }

    /// Python: `SplitText.wrapping`.
    fn wrapping(&self) -> (usize, usize) {
        let is_inside = |part: &Option<JsonPart>| part.is_some_and(|part| part.in_string);
        let count = self.json.iter().filter(|part| is_inside(part)).count();
        let first = self.json.iter().position(is_inside);
        let last = self.json.iter().rposition(is_inside);
        let (Some(first), Some(last)) = (first, last) else { return (0, 0) };
        if self.asked.text.contains(&b'\n') || last - first >= count {
            return (0, 0);
        }
        let chars: usize = self.sizes[first..=last].iter().sum();
        let all: usize = self.sizes.iter().sum();
        let is_most = chars as f64 >= WRAPPED * all as f64;
        if is_most { (first, self.lines.len() - last - 1) } else { (0, 0) }
    }

    /// Python: `_start_of_ending`; 0 for what is below it.
    fn start_of_ending(&self, end: usize) -> usize {
        let start = end.saturating_sub(ENDING);
        let is_deeper = |line: &&[u8]| matches!(line.first(), Some(b' ' | b'\t'));
        if self.lines[start..end].iter().any(is_deeper) {
            return end;
        }
        let Some(last) = end.checked_sub(1) else { return start };
        if let (Some(tag), true) = (closing_tag(self.lines[last]), end >= ENDING) {
            let opening = [&b"<"[..], tag, b">"].concat();
            let tags = (start.saturating_sub(2)..=start).rev().filter(|&at| at > 0);
            let mut open = tags.filter(|&at| find(self.lines[at], &opening).is_some());
            return open.next().unwrap_or(start);
        }
        start
    }

    /// Python: `_fixed_lines`.
    fn fixed_lines(&self, first: usize, last: usize) -> Vec<u8> {
        let fails = first < last && usize::from(self.asked.formats[first]) / (LENGTHS * INDENTS) == FAILURE;
        let in_frame = |line: usize| line < first || line >= last || (fails && line == first);
        let stay = |(line, &format): (usize, &u8)| {
            if self.is_gone(line) {
                REMOVED_BEFORE
            } else {
                u8::from(in_frame(line) || (self.asked.keeps_outline && is_outline(format)))
            }
        };
        self.asked.formats.iter().enumerate().map(stay).collect()
    }

    // --- names (Python: `LineNames`) -----------------------------------------------------------

    /// The lines whose names may be worth listing, with the names they own.
    fn lines_with_names(&self, stays: &[u8]) -> Vec<LineNames> {
        if !self.asked.lists_names {
            return Vec::new();
        }
        let min_need = self.asked.rate * MIN_SIZE / TOKEN;
        let codes = self.index.codes_of(self.result);
        let is_listed = |&line: &usize| {
            let has_names = unique_bins_of(codes[line])[1..4].iter().any(|&bin| bin > 0);
            self.asked.names[line] > min_need && stays[line] != KEPT && has_names
        };
        let of_line = |line| LineNames {
            line,
            own: self.index.own_names(self.result.first + line),
            spelled: OnceCell::new(),
        };
        (0..self.lines.len()).filter(is_listed).map(of_line).collect()
    }

    /// Python: `LineNames._is_worth`.
    fn is_worth(&self, line: usize, size: usize) -> bool {
        self.asked.names[line] * TOKEN > self.asked.rate * size as f64
    }

    /// Python: `LineNames.listed_chars`.
    fn listed_chars(&self, names: &LineNames) -> usize {
        let longest = names.own.iter().map(|one| one.size).max().unwrap_or(0);
        if !self.is_worth(names.line, usize::from(longest)) {
            return 0;
        }
        self.spelled(names).iter().map(|name| char_count(name) + 2).sum()
    }

    /// Python: `LineNames.listed_range`.
    fn listed_range(&self, names: &LineNames) -> (usize, usize) {
        let sizes = || names.own.iter().map(|one| usize::from(one.size));
        match sizes().max() {
            Some(longest) if self.is_worth(names.line, longest) => {
                (sizes().min().unwrap_or(0), sizes().sum())
            }
            _ => (0, 0),
        }
    }

    /// Python: `LineNames.of`.
    fn spelled(&self, names: &LineNames) -> Vec<&[u8]> {
        let line = &*self.plain[names.line];
        let place = |name: &[u8]| {
            let start = name.as_ptr() as usize - line.as_ptr() as usize;
            (start, start + name.len())
        };
        let find = || self.find_spelled(names).into_iter().map(place).collect();
        let known = names.spelled.get_or_init(find);
        known.iter().map(|&(start, end)| &line[start..end]).collect()
    }

    fn find_spelled(&self, names: &LineNames) -> Vec<&[u8]> {
        let mut found = self.index.spelled(&names.own, &self.plain[names.line]);
        found.retain(|name| is_readable_name(name, self.asked.in_prose));
        let size: usize = found.iter().map(|name| char_count(name) + 2).sum();
        if self.is_worth(names.line, size) {
            found
        } else {
            Vec::new()
        }
    }

    // --- what is needed ------------------------------------------------------------------------

    /// Python: `_keep_needed`.
    fn keep_needed(&self, stays: &mut [u8], names: &[LineNames], first: usize, last: usize) {
        let asked = self.asked;
        let limit = asked.rate / TOKEN;
        let need = |line: usize| asked.whole[line] + asked.names[line];
        let mut worth: Vec<f64> = (0..self.lines.len())
            .map(|line| weigh(need(line) - limit * (self.sizes[line] + 1) as f64))
            .collect();
        for line in first..last {
            if stays[line] != 0 {
                worth[line] = 0.0; // it stays or went in any case
            }
        }
        let mut open = OpenLines::new(self, names, stays, worth);
        if first < last && !open.keep_all(stays, first, last) {
            let mut layout = self.layout(&self.plain);
            if self.is_json() {
                layout = Layout::Code; // members below their keys
            }
            if self.are_parts {
                names.iter().for_each(|one| open.settle_line(one.line));
                self.keep_units(layout, &open.worth, stays, first, last);
            } else {
                let blocks = text_blocks(asked.text, layout, first, last);
                open.settle(&blocks);
                keep_blocks(&blocks, &open.worth, stays, asked.compensated);
            }
        }
        for line in (first..last).rev() {
            let is_blank = stays[line] != 0 && trim(self.lines[line]).is_empty();
            if is_blank && line + 1 < last && stays[line + 1] == 0 {
                stays[line] = 0; // beside a gap it divides nothing
            }
        }
    }

    /// Python: `_layout`.
    fn layout(&self, lines: &[impl AsRef<[u8]>]) -> Layout {
        let begins = |some: &[u8]| lines.iter().any(|line| line.as_ref().starts_with(some));
        if self.asked.layout != Layout::Rows {
            return self.asked.layout;
        }
        if begins(b"@@ -") {
            return Layout::Diff;
        }
        let is_heading = |line: &[u8]| HEADINGS.iter().any(|sign| line.starts_with(sign));
        let headings = lines.iter().filter(|line| is_heading(line.as_ref())).count();
        if headings > 1 && !begins(b"#!") {
            return Layout::Prose;
        }
        Layout::Rows
    }

    /// Python: `_keep_units`.
    fn keep_units(
        &self,
        layout: Layout,
        worth: &[f64],
        stays: &mut [u8],
        first: usize,
        last: usize,
    ) {
        let starts = self.units();
        let ends = starts.iter().skip(1).copied().chain([self.lines.len()]);
        let units: Vec<(usize, usize)> = starts.iter().copied().zip(ends).collect();
        let spelled: Vec<Vec<u8>> =
            units.iter().map(|&unit| self.spelled_unit(unit)).collect();
        let value = |&(start, end): &(usize, usize)| {
            sum(worth[start..end].iter().copied(), self.asked.compensated)
        };
        let values: Vec<f64> = units.iter().map(value).collect();
        let unit_of = |line: usize| {
            let before = starts.partition_point(|&start| start < line);
            before + usize::from(before == starts.len() && self.lines.len() < line)
        };
        let text = spelled.join(&b'\n');
        let mut kept = vec![0; units.len()];
        let blocks = text_blocks(&text, layout, unit_of(first), unit_of(last));
        keep_blocks(&blocks, &values, &mut kept, self.asked.compensated);
        for (&(start, end), _) in units.iter().zip(&kept).filter(|(_, &kept)| kept != 0) {
            stays[start..end].fill(KEPT);
        }
    }

    /// Python: a line of `spelled` in `_keep_units`.
    fn spelled_unit(&self, (start, end): (usize, usize)) -> Vec<u8> {
        let depth = self.json[start].map_or(0, |part| part.depth);
        [b"  ".repeat(depth), self.plain[start..end].concat()].concat()
    }

    /// Python: `SplitText.units`, without the number of parts at the end.
    fn units(&self) -> Vec<usize> {
        let (mut found, mut size, mut is_escaped) = (vec![0], 0, false);
        for at in 1..self.lines.len() {
            let (before, after) = (self.lines[at - 1], self.lines[at]);
            size += self.sizes[at - 1];
            is_escaped |= before.ends_with(b"\\n");
            let is_new_line = self.offset(after) > self.offset(before) + before.len();
            let ends = match (self.json[at - 1], self.json[at]) {
                // Python: `_ends_json_unit`.
                (Some(one), Some(other)) => {
                    !(one.in_string && other.in_string) || before.ends_with(b"\\n")
                }
                _ => ends_unit(before, after, is_escaped),
            };
            if is_new_line || ends {
                found.push(at);
                size = 0;
                is_escaped &= !is_new_line;
            } else if size + self.sizes[at] > LONG_LINE_CHARS {
                found.push(at);
                size = 0;
            }
        }
        found
    }

    /// Where one of the lines, which are slices of the text, begins in it.
    fn offset(&self, line: &[u8]) -> usize {
        line.as_ptr() as usize - self.asked.text.as_ptr() as usize
    }

    /// Python: `_fill_short_runs`.
    fn fill_short_runs(&self, stays: &mut [u8]) {
        let mut at = 0;
        while let Some((start, end)) = next_gap(stays, at) {
            at = end;
            let chars: usize = self.sizes[start..end].iter().sum();
            let is_short = chars + (end - start) < SHORT_RUN;
            if is_short && !(start..end).any(|line| self.is_gone(line)) {
                stays[start..end].fill(KEPT);
            }
        }
    }

    // --- the text that remains -----------------------------------------------------------------

    fn cut(&self, stays: &[u8], names: &[LineNames], total: usize) -> Option<Selected> {
        let mut pieces = Pieces::default();
        let mut removed: Vec<u32> = Vec::new();
        let mut missing = MissingNames { kept: self.kept_text(stays), lookups: MAX_LOOKUPS };
        let (mut risk, mut at) = (0.0, 0);
        while let Some((start, end)) = next_gap(stays, at) {
            let listed = self.listed_names(names, &mut missing, start, end);
            self.add_lines(&mut pieces, at, start);
            pieces.add(gap_line(end - start, self.are_parts).as_bytes());
            let mut spelled = listed.iter().flat_map(|one| &one.1).peekable();
            if spelled.peek().is_some() {
                let all: Vec<&[u8]> = spelled.copied().collect();
                pieces.add(&[&b"[names left out: "[..], &all.join(&b", "[..]), b"]"].concat());
            }
            removed.extend(start as u32..end as u32);
            risk += self.range_risk(start, end, &listed);
            at = end;
        }
        self.add_lines(&mut pieces, at, self.lines.len());
        let are_parts = self.are_parts;
        (!removed.is_empty()).then_some(Selected { text: pieces.text, removed, total, risk, are_parts })
    }

    /// The text that stays, without holes.
    fn kept_text(&self, stays: &[u8]) -> Vec<u8> {
        let mut pieces = Pieces::default();
        let mut at = 0;
        while let Some((start, end)) = next_gap(stays, at) {
            self.add_lines(&mut pieces, at, start);
            at = end;
        }
        self.add_lines(&mut pieces, at, self.lines.len());
        pieces.text
    }

    /// Python: `SplitText.slice`: parts of one line stay on one line.
    fn add_lines(&self, pieces: &mut Pieces, start: usize, end: usize) {
        if start >= end {
            return;
        }
        let last = self.lines[end - 1];
        pieces.add(&self.asked.text[self.offset(self.lines[start])..self.offset(last) + last.len()]);
    }

    /// Python: `_MissingNames.listed`: by line, in order; of too many, the most needed.
    fn listed_names(
        &self,
        all: &[LineNames],
        missing: &mut MissingNames,
        start: usize,
        end: usize,
    ) -> Vec<(usize, Vec<&[u8]>)> {
        let first = all.partition_point(|one| one.line < start);
        let mut names: Vec<&LineNames> =
            all[first..].iter().take_while(|one| one.line < end).collect();
        let need = |one: &LineNames| self.asked.names[one.line];
        names.sort_by(|one, other| need(other).total_cmp(&need(one)));
        let mut listed = Vec::new();
        let mut count = 0;
        for one in names {
            let mut found = self.spelled(one);
            let Some(left) = missing.lookups.checked_sub(found.len()) else {
                missing.lookups = 0;
                break;
            };
            missing.lookups = left;
            let has_names = !found.is_empty();
            found.retain(|name| find(&missing.kept, name).is_none());
            count += found.len();
            if count > MAX_NAMES {
                break;
            }
            if has_names {
                listed.push((one.line, found));
            }
        }
        listed.sort_by_key(|one| one.0);
        listed
    }

    /// Python: `_range_risk`; each sum has its order.
    fn range_risk(&self, start: usize, end: usize, listed: &[(usize, Vec<&[u8]>)]) -> f64 {
        let (whole, names) = (self.asked.whole, self.asked.names);
        let sum_of = |some: &[f64]| sum(some.iter().copied(), self.asked.compensated);
        let mut risk = sum_of(&whole[start..end]) + sum_of(&names[start..end]);
        risk -= sum(listed.iter().map(|one| names[one.0]), self.asked.compensated);
        for line in (start..end).filter(|&line| self.is_gone(line)) {
            let is_listed = listed.binary_search_by_key(&line, |one| one.0).is_ok();
            risk -= whole[line] + if is_listed { 0.0 } else { names[line] };
        }
        risk
    }
}

/// Python: `_weigh`.
fn weigh(worth: f64) -> f64 {
    if worth > 0.0 { NEED_FACTOR * worth } else { worth }
}

/// Python: `_OpenLines`.
struct OpenLines<'a> {
    selection: &'a Selection<'a>,
    names: &'a [LineNames],
    open: Vec<Option<u32>>, // by line: its place among the names
    worth: Vec<f64>,        // by line, of an open one without listed names
}

impl<'a> OpenLines<'a> {
    fn new(
        selection: &'a Selection,
        names: &'a [LineNames],
        stays: &[u8],
        worth: Vec<f64>,
    ) -> Self {
        let mut open = vec![None; worth.len()];
        for (at, one) in names.iter().enumerate().filter(|(_, one)| stays[one.line] == 0) {
            open[one.line] = Some(at as u32);
        }
        OpenLines { selection, names, open, worth }
    }

    fn keep_all(&self, stays: &mut [u8], first: usize, last: usize) -> bool {
        let is_kept = |line: usize| stays[line] == KEPT || self.range_of(line).0 > ROUNDING;
        let are_kept = (first..last).all(is_kept);
        if are_kept {
            stays[first..last].fill(KEPT);
        }
        are_kept
    }

    fn settle(&mut self, blocks: &[TextBlock]) {
        let mut lines = Vec::new();
        for block in blocks {
            lines.clear();
            block.for_each_line(&mut |line| lines.push(line));
            if lines.iter().all(|&line| self.open[line].is_none()) {
                continue;
            }
            if block.is_leaf() {
                self.settle_leaf(&lines);
            } else if lines.iter().all(|&line| self.range_of(line).0 > ROUNDING) {
                for &line in &lines {
                    self.worth[line] = self.range_of(line).0; // it stays
                }
            } else {
                lines.iter().for_each(|&line| self.settle_line(line));
            }
        }
    }

    fn settle_leaf(&mut self, lines: &[usize]) {
        let compensated = self.selection.asked.compensated;
        let ends = |pick: fn((f64, f64)) -> f64| {
            let ranges = lines.iter().map(|&line| pick(self.range_of(line)));
            (sum(ranges.clone(), compensated), ranges.collect::<Vec<f64>>())
        };
        let (least, lows) = ends(|range| range.0);
        let (most, highs) = ends(|range| range.1);
        let known = if least > ROUNDING {
            lows // it stays
        } else if most < -ROUNDING {
            highs // it goes
        } else {
            lines.iter().for_each(|&line| self.settle_line(line));
            return;
        };
        lines.iter().zip(known).for_each(|(&line, worth)| self.worth[line] = worth);
    }

    fn settle_line(&mut self, line: usize) {
        if let Some(at) = self.open[line] {
            let listed = self.selection.listed_chars(&self.names[at as usize]);
            if listed > 0 {
                self.worth[line] = self.worth_without(line, listed);
            }
        }
    }

    /// The least and the most that keeping a line may be worth.
    fn range_of(&self, line: usize) -> (f64, f64) {
        let unlisted = self.worth[line];
        let Some(at) = self.open[line] else { return (unlisted, unlisted) };
        match self.selection.listed_range(&self.names[at as usize]) {
            (_, 0) => (unlisted, unlisted),
            (fewest, most) => (
                unlisted.min(self.worth_without(line, fewest)),
                unlisted.max(self.worth_without(line, most)),
            ),
        }
    }

    fn worth_without(&self, line: usize, listed: usize) -> f64 {
        let asked = self.selection.asked;
        let rest = (self.selection.sizes[line] + 1).saturating_sub(listed).max(1);
        let risk = asked.whole[line] + LISTED_RATIO * asked.names[line];
        weigh(risk - asked.rate / TOKEN * rest as f64)
    }
}

/// Python: `_MissingNames`.
struct MissingNames {
    kept: Vec<u8>,
    lookups: usize,
}

/// The names that only one line has: their sizes by their numbers.
struct LineNames {
    line: usize,
    own: Vec<OwnName>,
    spelled: OnceCell<Vec<(usize, usize)>>, // where the line has those that are listed
}

/// Pieces joined by line breaks.
#[derive(Default)]
struct Pieces {
    text: Vec<u8>,
    count: usize,
}

impl Pieces {
    fn add(&mut self, piece: &[u8]) {
        if self.count > 0 {
            self.text.push(b'\n');
        }
        self.text.extend_from_slice(piece);
        self.count += 1;
    }
}

/// Python: `line_parts._ends_unit`.
fn ends_unit(before: &[u8], after: &[u8], is_escaped: bool) -> bool {
    let rest = trim_start(after);
    if before.ends_with(b"\\n") || rest.starts_with(b"\"") || rest.starts_with(b"{\"") {
        return true;
    }
    !is_escaped && !before.ends_with(b"; ")
}

/// The name in Python's `_CLOSING_TAG` (`</(\w+)>$`).
fn closing_tag(line: &[u8]) -> Option<&[u8]> {
    let inner = line.strip_suffix(b">")?;
    let mut begin = inner.len();
    loop {
        let (point, size) = decode_before(inner, begin);
        if size == 0 || !is_word(point) {
            break;
        }
        begin -= size;
    }
    (begin < inner.len() && inner[..begin].ends_with(b"</")).then(|| &inner[begin..])
}

/// Python: `is_readable_name`; names are ASCII.
fn is_readable_name(name: &[u8], in_prose: bool) -> bool {
    if name.len() >= 7 && name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return true; // a hash
    }
    !is_meaningless(name) && !(in_prose && is_compound(name))
}

/// Python: `_MEANINGLESS.search`.
fn is_meaningless(name: &[u8]) -> bool {
    let is_address = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    !name.iter().any(u8::is_ascii_alphabetic)
        || name.strip_prefix(b"0x").is_some_and(is_address)
        || is_file_mode(name)
        || is_numbered_word(name)
        || is_drawing(name)
        || name.ends_with(b"\\")
        || name.ends_with(b"\\n")
}

/// Python: `^\d+:[a-zA-Z-]+$`.
fn is_numbered_word(name: &[u8]) -> bool {
    let Some(colon) = name.iter().position(|&byte| byte == b':') else { return false };
    let (digits, word) = (&name[..colon], &name[colon + 1..]);
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'-';
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
        && !word.is_empty() && word.iter().all(is_letter)
}

/// Python: `^[\d.,-]*(?:[a-zA-Z][\d.,-]+){2,}$`, a path of a drawing.
fn is_drawing(name: &[u8]) -> bool {
    let is_figure = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b',' | b'-');
    let letters = name.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
    let is_step = |(at, &byte): (usize, &u8)| {
        is_figure(byte)
            || (byte.is_ascii_alphabetic() && name.get(at + 1).is_some_and(|&next| is_figure(next)))
    };
    letters >= 2 && name.iter().enumerate().all(is_step)
}

/// Python: `_COMPOUND.fullmatch`.
fn is_compound(name: &[u8]) -> bool {
    let rest = match name.first() {
        Some(first) if first.is_ascii_uppercase() => &name[1..],
        _ => name,
    };
    let is_word = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_lowercase);
    rest.contains(&b'-') && rest.split(|&byte| byte == b'-').all(is_word)
}

/// Python: `^[dl-](?:[r-][w-][xsStT-]){3}$`.
fn is_file_mode(name: &[u8]) -> bool {
    let is_right = |(at, &byte): (usize, &u8)| match at {
        0 => matches!(byte, b'd' | b'l' | b'-'),
        _ => match at % 3 {
            1 => matches!(byte, b'r' | b'-'),
            2 => matches!(byte, b'w' | b'-'),
            _ => matches!(byte, b'x' | b's' | b'S' | b't' | b'T' | b'-'),
        },
    };
    name.len() == 10 && name.iter().enumerate().all(is_right)
}

/// The next run of lines that go: from the first 0 on, up to a 1.
fn next_gap(stays: &[u8], at: usize) -> Option<(usize, usize)> {
    let start = at + stays[at..].iter().position(|&stay| stay == 0)?;
    let end = stays[start..].iter().position(|&stay| stay == KEPT);
    Some((start, end.map_or(stays.len(), |end| start + end)))
}

/// Python: a format in `_OUTLINE`.
fn is_outline(format: u8) -> bool {
    let format = usize::from(format);
    format / (LENGTHS * INDENTS) == DEFINITION && format % INDENTS == 0
}

/// Python: `markers.gap_line`.
fn gap_line(omitted: usize, are_parts: bool) -> String {
    let digits = omitted.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("[… {grouped} {}]", if are_parts { "parts" } else { "lines" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps() {
        assert_eq!(gap_line(1234567, false), "[… 1,234,567 lines]");
        assert_eq!(gap_line(12, true), "[… 12 parts]");
        assert_eq!(next_gap(&[1, 0, 2, 1, 0], 0), Some((1, 3)));
        assert_eq!(next_gap(&[1, 0, 2, 1, 0], 3), Some((4, 5)));
        assert_eq!(next_gap(&[1], 1), None);
    }
}
