//! Blocks of a text that stay or go together: Python's `forecast.text_blocks`, line by line.

use crate::text::{
    begins_word, decode, decode_before, find, first_chars, has_word, is_digit, is_space,
    is_word, lines, run_end, sum, trim_end, trim_start, unnumbered,
};

#[derive(Clone, Copy, PartialEq)]
pub enum Layout {
    Code,
    Prose,
    Diff,
    Hits,
    Rows,
}

const SMALL: usize = 4; // lines that stay or go together, if nothing divides them
const MAX_DEPTH: usize = 8; // of blocks inside blocks
const MAX_GLUED: usize = 40; // lines of one doc comment
const MAX_SIGNATURE: usize = 12; // lines of a definition before its body
const MAX_RECORD: usize = 12; // lines of a member of JSON without a key that stay or go together
const BLANK: i64 = -1; // in place of an indentation

/// Lines that belong together, and the blocks inside them.
pub struct TextBlock {
    own: Vec<usize>,
    inner: Vec<TextBlock>,
    tail: Vec<usize>,
    can_stand_alone: bool,
}

impl TextBlock {
    fn leaf(first: usize, end: usize) -> Self {
        TextBlock::new((first..end).collect(), Vec::new(), Vec::new(), true)
    }

    fn new(own: Vec<usize>, inner: Vec<Self>, tail: Vec<usize>, can_stand_alone: bool) -> Self {
        TextBlock { own, inner, tail, can_stand_alone }
    }

    /// Return whether it holds neither blocks nor an end.
    pub fn is_leaf(&self) -> bool {
        self.inner.is_empty() && self.tail.is_empty()
    }

    /// Python: `lines_of`, in its order.
    pub fn for_each_line(&self, each: &mut impl FnMut(usize)) {
        self.own.iter().chain(&self.tail).for_each(|&line| each(line));
        self.inner.iter().for_each(|one| one.for_each_line(each));
    }
}

/// Python: `text_blocks(text, layout, first, end)`.
pub fn text_blocks(text: &[u8], layout: Layout, first: usize, end: usize) -> Vec<TextBlock> {
    let bare: Vec<&[u8]> = match layout {
        Layout::Hits | Layout::Rows => lines(text).collect(), // the numbers are their own
        _ => lines(text).map(unnumbered).collect(),
    };
    let end = end.min(bare.len());
    if first >= end {
        return Vec::new();
    }
    Scan::new(bare, layout).blocks(first, end)
}

/// Consecutive pairs of these places and an end (Python: `pairwise([*places, end])`).
fn spans(places: &[usize], end: usize) -> Vec<(usize, usize)> {
    let ends = places.iter().skip(1).copied().chain([end]);
    places.iter().copied().zip(ends).collect()
}

/// Python: the lines of a range that are neither among `own` nor in these blocks.
fn rest_of(first: usize, end: usize, own: &[usize], inner: &[TextBlock]) -> Vec<usize> {
    let mut covered = vec![false; end - first];
    let mut cover = |line: usize| {
        if let Some(flag) = line.checked_sub(first).and_then(|at| covered.get_mut(at)) {
            *flag = true;
        }
    };
    own.iter().for_each(|&line| cover(line));
    inner.iter().for_each(|one| one.for_each_line(&mut cover));
    (first..end).filter(|&line| !covered[line - first]).collect()
}

/// Python: `_Scan`.
struct Scan<'a> {
    lines: Vec<&'a [u8]>,
    layout: Layout,
    starts: Vec<&'a [u8]>,
    indents: Vec<i64>,
    glued: Vec<bool>,
}

impl<'a> Scan<'a> {
    fn new(lines: Vec<&'a [u8]>, layout: Layout) -> Self {
        let body = |line: &&'a [u8]| match layout {
            Layout::Diff => &line[decode(line, 0).1..],
            _ => *line,
        };
        let starts: Vec<&[u8]> = lines.iter().map(|line| start_of(body(line))).collect();
        let indents = lines.iter().zip(&starts).map(|(line, start)| indent(body(line), start));
        let indents = indents.collect();
        let glued = vec![false; lines.len()];
        let mut scan = Scan { lines, layout, starts, indents, glued };
        if matches!(layout, Layout::Code | Layout::Diff) {
            scan.glue_code();
        }
        scan
    }

    fn blocks(&self, first: usize, end: usize) -> Vec<TextBlock> {
        match self.layout {
            Layout::Code => self.paragraphs(first, end, 0),
            Layout::Prose => self.sections(first, end),
            Layout::Diff => self.files(first, end),
            Layout::Hits => self.hits(first, end),
            Layout::Rows => self.rows(first, end),
        }
    }

    fn is_blank(&self, at: usize) -> bool {
        self.indents[at] == BLANK
    }

    // --- code, settings, JSON: by blank lines and indentation ----------------------------------

    fn glue_code(&mut self) {
        let (mut quote, mut count): (&[u8], usize) = (b"", 0);
        let (mut in_comment, mut in_attribute) = (false, false);
        for at in 0..self.starts.len() {
            let start = self.starts[at];
            if !quote.is_empty() {
                count += 1;
                self.glued[at] = count < MAX_GLUED;
                if find(start, quote).is_some() {
                    quote = b"";
                }
                continue;
            }
            if let Some(found) = first_quote(start) {
                if count_of(start, found) % 2 == 1 {
                    (quote, count) = (found, 0);
                }
            }
            let is_comment = is_comment(start);
            if is_comment && in_comment && (self.indents[at] - self.indents[at - 1]).abs() <= 1 {
                count += 1;
                self.glued[at] = count < MAX_GLUED;
            } else if is_comment {
                count = 0;
            }
            self.glued[at] |= in_attribute && !start.is_empty();
            (in_comment, in_attribute) = (is_comment, is_attribute(start));
        }
    }

    fn paragraphs(&self, mut first: usize, end: usize, depth: usize) -> Vec<TextBlock> {
        while first < end && self.is_blank(first) {
            first += 1;
        }
        if first >= end {
            return Vec::new();
        }
        if end - first <= SMALL || depth >= MAX_DEPTH {
            return vec![TextBlock::leaf(first, end)];
        }
        let outer = self.outermost(first, end);
        if self.indents[first] > outer {
            // The range begins inside a block.
            let inside = (first..end).find(|&at| self.indents[at] == outer).unwrap_or(end);
            let mut found = self.paragraphs(first, inside, depth + 1);
            found.append(&mut self.paragraphs(inside, end, depth));
            return found;
        }
        let labels = self.is_label(first);
        let begins: Vec<usize> = (first + 1..end)
            .filter(|&at| self.is_blank(at - 1) && self.is_head(at, outer, labels))
            .collect();
        let mut starts = vec![first];
        // Python: `_merged`.
        let mut joins = false;
        for (at, after) in spans(&begins, self.lines.len()) {
            let is_lone = after - at <= 2 && !self.is_definition(at);
            let is_lone_comment = is_lone && is_comment(self.starts[at]);
            if !joins && (!is_lone || is_lone_comment) {
                starts.push(at);
            }
            joins = is_lone_comment;
        }
        let mut found = Vec::new();
        for (start, stop) in spans(&starts, end) {
            found.append(&mut self.paragraph(start, stop, depth));
        }
        found
    }

    /// The smallest indentation of a range in which not all lines are blank.
    fn outermost(&self, first: usize, end: usize) -> i64 {
        let depths = self.indents[first..end].iter().filter(|&&one| one != BLANK);
        depths.min().copied().unwrap_or(0)
    }

    fn is_head(&self, at: usize, outer: i64, labels: bool) -> bool {
        self.indents[at] == outer
            && !self.glued[at]
            && !is_continuation(self.starts[at])
            && (labels || !self.is_label(at))
            && !self.is_brace(at)
    }

    fn is_brace(&self, at: usize) -> bool {
        let before = at.checked_sub(1).map_or(&b""[..], |at| trim_end(self.starts[at]));
        trim_end(self.starts[at]) == b"{"
            && before.last().is_some_and(|sign| !b",;:([{}>".contains(sign))
    }

    fn is_label(&self, at: usize) -> bool {
        is_label(self.starts[at])
    }

    fn paragraph(&self, first: usize, end: usize, depth: usize) -> Vec<TextBlock> {
        if end - first <= SMALL {
            return vec![TextBlock::leaf(first, end)];
        }
        let outer = self.outermost(first, end);
        let mut heads = vec![first];
        let labels = self.is_label(first);
        heads.extend((first + 1..end).filter(|&at| self.is_head(at, outer, labels)));
        if heads.len() == 1 {
            return vec![self.definition(first, end, outer, depth)];
        }
        let mut found = Vec::new();
        let mut open_from = first;
        for (lead, start, stop) in self.with_comments(&heads, end) {
            let is_large = stop - start > SMALL;
            let is_opening =
                self.is_record(start) || (stop - start > 1 && self.is_definition(start));
            let divides = is_large || is_opening || stop - open_from > SMALL;
            if lead > open_from && divides && !self.is_lone(open_from, lead) {
                found.push(TextBlock::leaf(open_from, lead));
                open_from = lead;
            }
            if is_large {
                let block = self.definition(start, stop, outer, depth);
                found.push(below(block, open_from, lead, start));
                open_from = stop;
            }
        }
        if open_from < end {
            // Python: `_add_end`.
            match found.last_mut().filter(|_| self.is_lone(open_from, end)) {
                Some(block) => block.own.extend(open_from..end),
                None => found.push(TextBlock::leaf(open_from, end)),
            }
        }
        found
    }

    fn with_comments(&self, heads: &[usize], end: usize) -> Vec<(usize, usize, usize)> {
        let mut found = Vec::new();
        let mut lead = None;
        for (start, stop) in spans(heads, end) {
            let is_one = |at: usize| self.starts[at].is_empty() || is_comment(self.starts[at]);
            let first = lead.unwrap_or(start);
            if (start..stop).all(is_one) && stop < end {
                lead = Some(first);
                continue;
            }
            found.push((first, start, stop));
            lead = None;
        }
        found
    }

    fn is_record(&self, at: usize) -> bool {
        matches!(self.starts[at].first(), Some(b'{' | b'['))
    }

    fn is_lone(&self, first: usize, end: usize) -> bool {
        let mut some = (first..end).filter(|&at| !self.is_blank(at));
        match (some.next(), some.next()) {
            (Some(at), None) => {
                matches!(self.layout, Layout::Code | Layout::Diff)
                    && !self.is_record(at)
                    && !self.is_definition(at)
                    && !is_continuation(self.starts[at])
            }
            _ => false,
        }
    }

    fn definition(&self, first: usize, end: usize, outer: i64, depth: usize) -> TextBlock {
        let is_record = matches!(trim_end(self.starts[first]), b"{" | b"[");
        if is_record && end - first <= MAX_RECORD {
            return TextBlock::leaf(first, end);
        }
        let head = (first..end).find(|&at| !is_attribute(self.starts[at])).unwrap_or(first);
        let mut signature = self.signature_end(head, end, outer);
        if is_record && !matches!(trim_end(self.lines[first + 1]).last(), Some(b'{' | b'[')) {
            signature = signature.max(first + 2);
        }
        let joined_end = (first + 1..end).find(|&at| !self.glued[at]).unwrap_or(end);
        let is_own = |&at: &usize| {
            let is_joined = if at == first { self.glued[at] } else { at < joined_end };
            self.indents[at] == outer || is_joined || at < signature
        };
        let own: Vec<usize> = (first..end).filter(is_own).collect();
        let mut last = end;
        while last > first && self.is_blank(last - 1) {
            last -= 1;
        }
        let is_tail = |at: usize| at + 1 >= last && at > first;
        let mut tail: Vec<usize> = own.iter().copied().filter(|&at| is_tail(at)).collect();
        tail.extend(last..end);
        let own: Vec<usize> = own.into_iter().filter(|&at| at + 1 < last || at == first).collect();
        let (mut inner, mut heads) = (Vec::new(), Vec::new());
        for (before, after) in spans(&own, tail.first().copied().unwrap_or(last)) {
            let has_body = after > before + 1;
            let mut body =
                if has_body { self.paragraphs(before + 1, after, depth + 1) } else { Vec::new() };
            if before == first || !self.is_label(before) {
                heads.push(before);
                inner.append(&mut body);
            } else {
                inner.push(TextBlock::new(vec![before], body, Vec::new(), true));
            }
        }
        if inner.is_empty() {
            return TextBlock::leaf(first, end);
        }
        let mut rest = rest_of(first, end, &[&heads[..], &tail].concat(), &inner);
        let alone = !is_control(self.starts[head]);
        let is_value = is_value(self.starts[head]);
        if alone && (is_value || !self.is_definition(head)) {
            // Its end belongs to its beginning.
            heads.extend(tail.iter().filter(|&&at| !self.is_blank(at)));
        }
        let mut is_head = vec![false; end - first];
        heads.iter().for_each(|&at| is_head[at - first] = true);
        rest.extend(tail.iter().filter(|&&at| !is_head[at - first]));
        TextBlock::new(heads, inner, rest, alone)
    }

    fn signature_end(&self, first: usize, end: usize, outer: i64) -> usize {
        if !matches!(trim_end(self.lines[first]).last(), Some(b'(' | b'[' | b'<' | b',')) {
            return first + 1;
        }
        for at in first + 1..end.min(first + MAX_SIGNATURE) {
            if self.indents[at] == outer {
                let line = trim_end(self.lines[at]);
                let closes = matches!(line.last(), Some(b':' | b'{' | b'(')) || line.ends_with(b"=>");
                return if closes { at + 1 } else { first + 1 };
            }
        }
        first + 1
    }

    fn is_definition(&self, at: usize) -> bool {
        let start = self.starts[at];
        is_definition(start) || is_heading(start) || has_failure(first_chars(start, 120))
    }

    // --- prose: by headings, paragraphs, list items and table rows ------------------------------

    fn sections(&self, first: usize, end: usize) -> Vec<TextBlock> {
        let headings = self.headings(first, end);
        let Some(level) = headings.iter().map(|one| one.1).min() else {
            return self.prose(first, end);
        };
        let tops: Vec<usize> =
            headings.iter().filter(|one| one.1 == level).map(|one| one.0).collect();
        let before = first < tops[0];
        let mut found = if before { self.sections(first, tops[0]) } else { Vec::new() };
        for (start, stop) in spans(&tops, end) {
            let inner = self.sections(start + 1, stop);
            found.push(TextBlock::new(vec![start], inner, Vec::new(), true));
        }
        found
    }

    /// The line and level of each heading; none inside a fence.
    fn headings(&self, first: usize, end: usize) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        let mut fenced = false;
        for at in first..end {
            let start = self.starts[at];
            if is_fence(start) {
                fenced = !fenced;
            } else if !fenced && start.first() == Some(&b'#') && is_heading(start) {
                found.push((at, run_end(start, 0, 6, |point| point == 0x23)));
            }
        }
        found
    }

    fn prose(&self, first: usize, end: usize) -> Vec<TextBlock> {
        self.below_leads(self.prose_pieces(first, end))
    }

    fn below_leads(&self, pieces: Vec<TextBlock>) -> Vec<TextBlock> {
        let mut found = Vec::new();
        let mut pieces = pieces.into_iter().peekable();
        while let Some(lead) = pieces.next() {
            let mut items = Vec::new();
            if self.is_lead(&lead) {
                while let Some(item) = pieces.next_if(|piece| self.is_below_lead(piece)) {
                    items.push(item);
                }
            }
            found.push(if items.is_empty() {
                lead
            } else {
                TextBlock::new(lead.own, items, Vec::new(), true)
            });
        }
        found
    }

    fn is_lead(&self, piece: &TextBlock) -> bool {
        if !piece.inner.is_empty() || piece.own.len() > SMALL {
            return false;
        }
        let starts = piece.own.iter().rev().map(|&at| self.starts[at]);
        let last = trim_end(starts.into_iter().find(|start| !start.is_empty()).unwrap_or(b""));
        last.ends_with(b":") || last.ends_with(b":**") || self.has_rule(piece)
    }

    fn is_below_lead(&self, piece: &TextBlock) -> bool {
        piece.own.first().is_some_and(|&at| is_item(self.starts[at])) && !self.has_rule(piece)
    }

    fn has_rule(&self, piece: &TextBlock) -> bool {
        let second = piece.own.get(1).map_or(&b""[..], |&at| self.starts[at]);
        matches!(second.first(), Some(b'|' | b':' | b'-')) && is_table_rule(second)
    }

    fn prose_pieces(&self, first: usize, end: usize) -> Vec<TextBlock> {
        let mut found = Vec::new();
        let (mut at, mut start) = (first, first);
        while at < end {
            let text = self.starts[at];
            if is_fence(text) {
                at = self.fence_end(at, end);
                continue;
            }
            let begins = at > start
                && ((self.is_blank(at - 1) && !text.is_empty())
                    || (self.indents[at] <= self.indents[start] && is_item(text)));
            if begins && !is_table_rule(text) {
                found.push(self.prose_piece(start, at));
                start = at;
            }
            at += 1;
        }
        if start < end {
            found.push(self.prose_piece(start, end));
        }
        found
    }

    fn prose_piece(&self, first: usize, end: usize) -> TextBlock {
        let fence = (first..end).find(|&at| is_fence(self.starts[at]));
        let Some(fence) = fence.filter(|_| end - first > 3 * SMALL) else {
            return TextBlock::leaf(first, end); // also if all of it is blank
        };
        let close = self.fence_end(fence, end);
        let own: Vec<usize> = (first..=fence).collect();
        let inner = self.paragraphs(fence + 1, close - 1, 1);
        let tail = rest_of(first, end, &own, &inner);
        TextBlock::new(own, inner, tail, false)
    }

    fn fence_end(&self, at: usize, end: usize) -> usize {
        (at + 1..end).find(|&close| is_fence(self.starts[close])).map_or(end, |close| close + 1)
    }

    // --- diffs: by file and hunk ---------------------------------------------------------------

    fn files(&self, first: usize, end: usize) -> Vec<TextBlock> {
        let heads: Vec<usize> =
            (first..end).filter(|&at| is_diff_file(self.lines[at])).collect();
        if heads.is_empty() {
            return self.hunks(first, end);
        }
        let mut found =
            if heads[0] > first { self.hunks(first, heads[0]) } else { Vec::new() };
        for (start, stop) in spans(&heads, end) {
            let is_body = |&at: &usize| !is_diff_head(self.lines[at]);
            let body = (start + 1..stop).find(is_body).unwrap_or(stop);
            let inner = self.hunks(body, stop);
            found.push(TextBlock::new((start..body).collect(), inner, Vec::new(), true));
        }
        found
    }

    fn hunks(&self, first: usize, end: usize) -> Vec<TextBlock> {
        let heads: Vec<usize> =
            (first..end).filter(|&at| self.lines[at].starts_with(b"@@")).collect();
        if heads.is_empty() {
            return self.paragraphs(first, end, 1);
        }
        let mut found = Vec::new();
        if heads[0] > first {
            found.push(TextBlock::leaf(first, heads[0]));
        }
        for (start, stop) in spans(&heads, end) {
            let is_short = stop - start <= 3 * SMALL;
            let inner =
                if is_short { Vec::new() } else { self.paragraphs(start + 1, stop, 1) };
            if inner.len() < 2 {
                found.push(TextBlock::leaf(start, stop));
                continue;
            }
            let rest = rest_of(start, stop, &[start], &inner);
            found.push(TextBlock::new(vec![start], inner, rest, false));
        }
        found
    }

    // --- hits, logs, tables: by row ------------------------------------------------------------

    fn hits(&self, first: usize, end: usize) -> Vec<TextBlock> {
        if !(first..end).any(|at| is_hit_row(self.lines[at])) {
            return self.rows(first, end);
        }
        let marks = (first..end).filter(|&at| self.lines[at] == b"--");
        let marks: Vec<usize> = marks.collect();
        if !marks.is_empty() {
            let mut starts = vec![first];
            starts.extend(marks.iter().map(|at| at + 1).filter(|&at| at < end));
            let leaf = |(start, stop)| TextBlock::leaf(start, stop);
            return spans(&starts, end).into_iter().map(leaf).collect();
        }
        let mut found = Vec::new();
        let mut at = first;
        while at < end {
            let mut stop = at + 1;
            let is_file = !self.starts[at].is_empty() && !is_hit_row(self.lines[at]);
            while is_file && stop < end && is_hit_row(self.lines[stop]) {
                stop += 1;
            }
            if is_file {
                let rows = self.excerpts(at + 1, stop);
                found.push(TextBlock::new(vec![at], rows, Vec::new(), true));
            } else {
                while stop < end && is_hit_row(self.lines[stop]) {
                    stop += 1;
                }
                found.append(&mut self.excerpts(at, stop));
            }
            at = stop;
        }
        found
    }

    fn excerpts(&self, first: usize, end: usize) -> Vec<TextBlock> {
        let mut found = Vec::new();
        let mut at = first;
        while at < end {
            let begin = hit_number(self.lines[at]);
            let mut has_context = begin.is_some_and(|one| one.1);
            let mut stop = at + 1;
            while let (Some((number, _)), true) = (begin, stop < end) {
                match hit_number(self.lines[stop]) {
                    Some((after, is_context)) if after == number + stop - at => {
                        has_context |= is_context;
                        stop += 1;
                    }
                    _ => break,
                }
            }
            if has_context {
                found.push(TextBlock::leaf(at, stop));
            } else {
                found.extend((at..stop).map(|row| TextBlock::leaf(row, row + 1)));
            }
            at = stop;
        }
        found
    }

    fn rows(&self, first: usize, end: usize) -> Vec<TextBlock> {
        let heads: Vec<usize> = (first..end).filter(|&at| is_rows_head(self.starts[at])).collect();
        let Some(&head) = heads.first() else { return self.plain_rows(first, end) };
        let mut found = self.plain_rows(first, head);
        for (start, stop) in spans(&heads, end) {
            let rows = self.plain_rows(start + 1, stop);
            found.push(TextBlock::new(vec![start], rows, Vec::new(), true));
        }
        found
    }

    fn plain_rows(&self, first: usize, end: usize) -> Vec<TextBlock> {
        let mut found = Vec::new();
        let mut at = first;
        while at < end {
            let mut stop = at + 1;
            let indent = self.indents[at];
            while stop < end && indent != BLANK && self.continues_row(at, stop) {
                stop += 1;
            }
            if has_failure(first_chars(self.starts[at], 120)) {
                let limit = end.min(at + 2 * SMALL);
                while stop < limit && !self.is_blank(stop) {
                    stop += 1;
                }
            }
            found.push(self.row(at, stop));
            at = stop;
        }
        found
    }

    fn continues_row(&self, row: usize, at: usize) -> bool {
        let (start, indent) = (self.starts[at], self.indents[row]);
        if start.is_empty() {
            let is_after = self.starts.get(at + 1).is_some_and(|after| !after.is_empty());
            return is_after && self.continues_row(row, at + 1);
        }
        if self.indents[at] > indent || is_excerpt(start) {
            return true;
        }
        if at == row + 1 {
            // A test, then its outcome.
            return start.starts_with(b"--- ") && self.starts[row].starts_with(b"=== RUN");
        }
        self.indents[at] == indent && is_closer(start)
    }

    fn row(&self, first: usize, end: usize) -> TextBlock {
        if end - first <= 2 * SMALL {
            return TextBlock::leaf(first, end);
        }
        self.definition(first, end, self.indents[first], 0)
    }
}

/// Python: `_Scan._below`.
fn below(mut block: TextBlock, first: usize, lead: usize, start: usize) -> TextBlock {
    let of_comment = if block.inner.is_empty() { lead..start } else { 0..0 };
    block.own = (first..lead).chain(of_comment).chain(block.own).collect();
    if !block.inner.is_empty() && lead < start {
        block.inner.insert(0, TextBlock::leaf(lead, start));
    }
    block
}

/// Python: `_start_of`.
fn start_of(line: &[u8]) -> &[u8] {
    const SIGNS: [&str; 4] = ["├", "└", "|--", "`--"];
    let start = trim_start(line);
    let first = decode(start, 0).0;
    let is_sign = matches!(first, 0x251c | 0x2514 | 0x2502 | 0x7c | 0x60);
    if !is_sign || !SIGNS.iter().any(|sign| find(start, sign.as_bytes()).is_some()) {
        return start;
    }
    // Python: `_BRANCH.match`.
    let is_stem = |point: u32| is_space(point) || matches!(point, 0x2502 | 0x7c);
    let mut stem = run_end(line, 0, usize::MAX, is_stem);
    loop {
        let rest = &line[stem..];
        let sign = match decode(rest, 0) {
            (0x251c | 0x2514, size) => size,
            _ if rest.starts_with(b"|--") || rest.starts_with(b"`--") => 3,
            _ => 0,
        };
        if sign > 0 {
            let bar = run_end(line, stem + sign, usize::MAX, |one| matches!(one, 0x2500 | 0x2d));
            return &line[run_end(line, bar, usize::MAX, is_space)..];
        }
        if stem == 0 {
            return start;
        }
        stem -= decode_before(line, stem).1; // the sign may begin with one of the stem
    }
}

/// Python: `_indent(line, start)`; BLANK for a blank line.
fn indent(line: &[u8], start: &[u8]) -> i64 {
    if start.is_empty() {
        return BLANK;
    }
    let blanks = &line[..line.len() - start.len()];
    let tabs = blanks.iter().filter(|&&byte| byte == b'\t').count();
    (crate::text::char_count(blanks) + 3 * tabs) as i64
}

// --- what a line begins with: the patterns of Python's `text_blocks` -----------------------------

fn begins_with(start: &[u8], some: &[&[u8]]) -> bool {
    some.iter().any(|one| start.starts_with(one))
}

/// The text behind blanks, and how many bytes of blanks there were.
fn behind_blanks(text: &[u8]) -> (&[u8], usize) {
    let rest = trim_start(text);
    (rest, text.len() - rest.len())
}

/// Python: `_COMMENT.match`.
fn is_comment(start: &[u8]) -> bool {
    const NO_COMMENTS: [&[u8]; 7] =
        [b"[", b"![", b"include", b"define", b"if", b"else", b"end"];
    match start.first() {
        Some(b'/') => begins_with(start, &[b"//", b"/*"]),
        Some(b'#') => !begins_with(&start[1..], &NO_COMMENTS),
        Some(b'*') => {
            let (point, size) = decode(start, 1);
            size == 0 || point == 0x2f || is_space(point)
        }
        Some(b'-') => start.starts_with(b"--") && {
            let (point, size) = decode(start, 2);
            size > 0 && is_space(point)
        },
        _ => begins_with(start, &[b";;", b"%%"]),
    }
}

/// Python: `_QUOTES.search`.
fn first_quote(start: &[u8]) -> Option<&'static [u8]> {
    let (double, single): (&[u8], &[u8]) = (b"\"\"\"", b"'''");
    match (find(start, double), find(start, single)) {
        (Some(one), Some(other)) => Some(if one < other { double } else { single }),
        (Some(_), None) => Some(double),
        (None, Some(_)) => Some(single),
        (None, None) => None,
    }
}

/// Python: `text.count(some)`.
fn count_of(text: &[u8], some: &[u8]) -> usize {
    let (mut count, mut rest) = (0, text);
    while let Some(at) = find(rest, some) {
        count += 1;
        rest = &rest[at + some.len()..];
    }
    count
}

/// Python: `_ATTRIBUTE.match`.
fn is_attribute(start: &[u8]) -> bool {
    match start.first() {
        Some(b'@') => {
            let name = run_end(start, 1, usize::MAX, |point| is_word(point) || point == 0x2e);
            let rest = trim_end(&start[name..]);
            let is_call = rest.len() >= 2 && rest[0] == b'(' && rest.ends_with(b")");
            name > 1 && (is_call || trim_start(rest).is_empty())
        }
        Some(b'#') => {
            let open = 1 + usize::from(start.get(1) == Some(&b'!'));
            let rest = trim_end(start.get(open..).unwrap_or(&[]));
            rest.len() >= 2 && rest[0] == b'[' && rest.ends_with(b"]")
        }
        _ => false,
    }
}

/// Python: `_CONTINUATION.match`.
fn is_continuation(start: &[u8]) -> bool {
    const WORDS: [&[u8]; 14] = [
        b"end", b"else", b"elif", b"elsif", b"except", b"finally", b"catch", b"rescue", b"ensure",
        b"fi", b"done", b"esac", b"then", b"do",
    ];
    match start.first() {
        Some(b')' | b']' | b'}' | b'>' | b'`') => true,
        Some(b'"') => matches!(start.get(1), None | Some(b',' | b'}' | b']')),
        Some(b'|') => {
            let (point, size) = decode(start, 1);
            size > 0 && (point == 0x7c || is_space(point))
        }
        Some(b'.') => {
            let (point, size) = decode(start, 1);
            size > 0 && is_word(point)
        }
        Some(b'<' | b'&' | b'?') => begins_with(start, &[b"</", b"&&", b"?."]),
        _ => has_word(start, &WORDS),
    }
}

/// Python: `_CONTROL.match`.
fn is_control(start: &[u8]) -> bool {
    const WORDS: [&[u8]; 26] = [
        b"if", b"for", b"while", b"switch", b"match", b"select", b"try", b"with", b"when", b"until",
        b"do", b"loop", b"case", b"default", b"return", b"else", b"elif", b"except", b"catch",
        b"finally", b"go", b"defer", b"await", b"unless", b"foreach", b"using",
    ];
    let rest = start.strip_prefix(b"}").map_or(start, trim_start);
    has_word(rest, &WORDS) || has_word(rest, &[b"lock"])
}

/// Python: `_DEFINITION.match`.
fn is_definition(start: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 15] = [
        b"export", b"default", b"pub", b"public", b"private", b"protected", b"static", b"abstract",
        b"final", b"async", b"override", b"unsafe", b"internal", b"inline", b"declare",
    ];
    const WORDS: [&[u8]; 25] = [
        b"def", b"class", b"func", b"fn", b"function", b"interface", b"type", b"struct", b"enum",
        b"trait", b"impl", b"module", b"mod", b"namespace", b"const", b"let", b"var", b"val",
        b"describe", b"it", b"test", b"record", b"object", b"protocol", b"extension",
    ];
    let mut rest = start;
    'prefixes: loop {
        for prefix in PREFIXES.iter().chain(&[&b"virtual"[..]]) {
            let Some(mut behind) = rest.strip_prefix(*prefix) else { continue };
            if *prefix == b"pub" && behind.first() == Some(&b'(') {
                let letters = run_end(behind, 1, usize::MAX, |one| matches!(one, 0x61..=0x7a));
                if letters > 1 && behind.get(letters) == Some(&b')') {
                    behind = &behind[letters + 1..];
                }
            }
            let (after, blanks) = behind_blanks(behind);
            if blanks > 0 {
                rest = after;
                continue 'prefixes;
            }
        }
        return has_word(rest, &WORDS);
    }
}

/// Python: `_VALUE.match`.
fn is_value(start: &[u8]) -> bool {
    let mut rest = start;
    loop {
        let behind = rest.strip_prefix(b"export").or_else(|| rest.strip_prefix(b"declare"));
        match behind.map(behind_blanks) {
            Some((after, blanks)) if blanks > 0 => rest = after,
            _ => return has_word(rest, &[b"const", b"let", b"var", b"val"]),
        }
    }
}

/// Python: `_LABEL.match`.
fn is_label(start: &[u8]) -> bool {
    if let Some(rest) = start.strip_prefix(b"default") {
        return trim_start(rest).starts_with(b":");
    }
    if !has_word(start, &[b"case"]) {
        return false;
    }
    let mut is_inside = false; // of parentheses, which hold no others
    for &byte in &start[4..] {
        match byte {
            b':' if !is_inside => return true,
            b'(' if !is_inside => is_inside = true,
            b')' if is_inside => is_inside = false,
            b'(' | b')' => return false,
            _ => {}
        }
    }
    false
}

/// Python: `_CLOSER.match`.
fn is_closer(start: &[u8]) -> bool {
    let line = trim_end(start);
    matches!(line.first(), Some(b')' | b']' | b'}'))
        && line.iter().all(|byte| matches!(byte, b',' | b';' | b')' | b']' | b'}'))
}

/// Python: `_HEADING.match`.
fn is_heading(start: &[u8]) -> bool {
    let signs = run_end(start, 0, 7, |point| point == 0x23);
    if signs > 0 {
        let (rest, blanks) = behind_blanks(&start[signs..]);
        return signs <= 6 && blanks > 0 && !rest.is_empty();
    }
    for (rule, sign) in [(&b"==="[..], b'='), (&b"---"[..], b'-')] {
        let Some(rest) = start.strip_prefix(rule) else { continue };
        let rest = behind_blanks(rest).0;
        let behind = &rest[decode(rest, 0).1..];
        return if sign == b'=' { behind.contains(&sign) } else { behind.last() == Some(&sign) };
    }
    false
}

/// Python: `_ROWS_HEAD.match`.
fn is_rows_head(start: &[u8]) -> bool {
    let line = trim_end(start);
    for (rule, sign) in [(&b"==="[..], b'='), (&b"---"[..], b'-')] {
        let signs = line.iter().take_while(|&&byte| byte == sign).count();
        if signs >= 3 {
            return line.len() >= signs + 4 && line.ends_with(rule);
        }
    }
    let dots = line.iter().take_while(|&&byte| byte == b'.').count();
    let Some(name) = line.strip_suffix(b":") else { return false };
    dots <= 2
        && name.get(dots) == Some(&b'/')
        && !name.contains(&b':')
        && run_end(name, 0, usize::MAX, |point| !is_space(point)) == name.len()
}

/// Python: `_ITEM.match`.
fn is_item(start: &[u8]) -> bool {
    let (point, size) = decode(start, 0);
    let sign = match point {
        0x7c if size > 0 => return true,
        0x2d | 0x2a | 0x2b | 0x2022 => size,
        _ => {
            let digits = run_end(start, 0, 3, is_digit);
            let is_number = digits > 0 && matches!(start.get(digits), Some(b'.' | b')'));
            if is_number { digits + 1 } else { 0 }
        }
    };
    let (rest, blanks) = behind_blanks(&start[sign..]);
    sign > 0 && blanks > 0 && !rest.is_empty()
}

/// Python: `_TABLE_RULE.match`.
fn is_table_rule(start: &[u8]) -> bool {
    let is_rule = |point: u32| is_space(point) || matches!(point, 0x3a | 0x7c | 0x2d);
    find(start, b"---").is_some() && run_end(start, 0, usize::MAX, is_rule) == start.len()
}

/// Python: `_FENCE.match`.
fn is_fence(start: &[u8]) -> bool {
    begins_with(start, &[b"```", b"~~~"])
}

/// Python: `_DIFF_FILE.match`.
fn is_diff_file(line: &[u8]) -> bool {
    const HEADS: [&[u8]; 6] = [
        b"diff --git ", b"diff -", b"Index: ", b"*** Update File", b"*** Add File",
        b"*** Delete File",
    ];
    begins_with(line, &HEADS)
}

/// Python: `_DIFF_HEAD.match`.
fn is_diff_head(line: &[u8]) -> bool {
    const HEADS: [&[u8]; 11] = [
        b"index ", b"--- ", b"+++ ", b"new file", b"deleted file", b"old mode", b"new mode",
        b"similarity", b"rename ", b"copy ", b"Binary ",
    ];
    begins_with(line, &HEADS)
}

/// Python: `_HIT_ROW.match`.
fn is_hit_row(line: &[u8]) -> bool {
    let number_ends = |from: usize| {
        let end = run_end(line, from, usize::MAX, is_digit);
        end > from && matches!(line.get(end), Some(b':' | b'-'))
    };
    let blanks = run_end(line, 0, 8, is_space);
    let word = &line[blanks..];
    let label = if word.starts_with(b"Line ") { 5 } else { usize::from(word.starts_with(b"L")) };
    if number_ends(blanks + label) {
        return true;
    }
    let mut at = 0;
    for _ in 0..300 {
        let (point, size) = decode(line, at);
        if size == 0 || is_space(point) || point == 0x3a {
            break;
        }
        at += size;
        if matches!(line.get(at), Some(b':' | b'-')) && number_ends(at + 1) {
            return true;
        }
    }
    false
}

/// Python: `_HIT_NUMBER.match`: the number, and if it is of a line of context.
fn hit_number(line: &[u8]) -> Option<(usize, bool)> {
    let number_at = |from: usize| {
        let end = run_end(line, from, 10, |point| matches!(point, 0x30..=0x39));
        let sign = line.get(end).filter(|one| matches!(one, b':' | b'-'))?;
        let digits = line.get(from..end).filter(|digits| matches!(digits.len(), 1..=9))?;
        let number = digits.iter().fold(0, |all, digit| all * 10 + usize::from(digit - b'0'));
        Some((number, *sign == b'-'))
    };
    if let Some(found) = number_at(run_end(line, 0, 8, is_space)) {
        return Some(found);
    }
    let mut at = 0;
    for _ in 0..300 {
        let (point, size) = decode(line, at);
        if size == 0 || is_space(point) || point == 0x3a {
            break;
        }
        at += size;
        if matches!(line.get(at), Some(b':' | b'-')) {
            if let Some(found) = number_at(at + 1) {
                return Some(found);
            }
        }
    }
    None
}

/// Python: `_EXCERPT.match`.
fn is_excerpt(start: &[u8]) -> bool {
    if begins_with(start, &[b"-->", b"= note", b"= help"]) {
        return true;
    }
    if start.len() >= 2 && start[..2].iter().all(|byte| matches!(byte, b'~' | b'^')) {
        return true;
    }
    let digits = run_end(start, 0, usize::MAX, is_digit);
    let bar = run_end(start, digits, usize::MAX, |point| point == 0x20);
    start.get(bar) == Some(&b'|') && matches!(start.get(bar + 1), None | Some(b' '))
}

/// Python: `_FAILURE.search`.
fn has_failure(start: &[u8]) -> bool {
    const WORDS: [&[u8]; 14] = [
        b"error", b"Error", b"ERROR", b"FAIL", b"FAILED", b"FAILURE", b"failed", b"Failed",
        b"failure", b"Failure", b"panic", b"fatal", b"Exception", b"Traceback",
    ];
    const SIGNS: [&str; 4] = ["✗", "×", "✘", "✖"];
    for (at, &byte) in start.iter().enumerate() {
        let is_found = match byte {
            b'e' | b'E' | b'f' | b'F' | b'p' | b'T' => {
                begins_word(start, at) && has_word(&start[at..], &WORDS)
            }
            0xc3 | 0xe2 => SIGNS.iter().any(|sign| start[at..].starts_with(sign.as_bytes())),
            _ => false,
        };
        if is_found {
            return true;
        }
    }
    false
}

// --- the choice of blocks ------------------------------------------------------------------------

#[derive(PartialEq)]
enum Choice {
    All,
    Inner,
    Own,
}

/// Python: `keep_blocks(blocks, worth, stays)`.
pub fn keep_blocks(blocks: &[TextBlock], worth: &[f64], stays: &mut [u8], compensated: bool) {
    for block in blocks {
        let (value, choice) = choose(block, worth, compensated);
        if value <= 0.0 {
            continue;
        }
        let mut keep = |line: usize| stays[line] = 1;
        if choice == Choice::All {
            block.for_each_line(&mut keep);
            continue;
        }
        block.own.iter().for_each(|&line| keep(line));
        if choice == Choice::Inner {
            block.tail.iter().for_each(|&line| keep(line));
            keep_blocks(&block.inner, worth, stays, compensated);
        }
    }
}

/// Python: `_choose`; each sum has its order.
fn choose(block: &TextBlock, worth: &[f64], compensated: bool) -> (f64, Choice) {
    let sum_of = |some: &[usize]| sum(some.iter().map(|&line| worth[line]), compensated);
    let own = sum_of(&block.own);
    if block.inner.is_empty() {
        return (own + sum_of(&block.tail), Choice::All);
    }
    let best = |one: &TextBlock| choose(one, worth, compensated).0.max(0.0);
    let inside = sum(block.inner.iter().map(best), compensated);
    if inside > 0.0 {
        let value = own + inside + sum_of(&block.tail);
        if !block.can_stand_alone || value > own {
            return (value, Choice::Inner);
        }
    }
    if block.can_stand_alone {
        return (own, Choice::Own);
    }
    let mut all = Vec::new();
    block.for_each_line(&mut |line| all.push(line));
    (sum_of(&all), Choice::All)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert!(is_heading(b"## a") && !is_heading(b"##a") && !is_heading(b"####### a"));
        assert!(is_heading(b"=====") && is_heading(b"--- a -") && !is_heading(b"=== a"));
        assert!(is_definition(b"pub(crate) async fn x") && !is_definition(b"pub(crate)fn x"));
        assert!(is_hit_row(b"src/a-b-12-x") && is_hit_row(b"  L12: x") && !is_hit_row(b"a b:1:"));
        assert!(is_attribute(b"@a.b(c) ") && is_attribute(b"#[x]") && !is_attribute(b"@a b"));
        assert!(is_excerpt(b"12 | x") && is_excerpt(b"^^") && !is_excerpt(b"12 |x"));
        assert!(is_item("• x".as_bytes()) && is_item(b"12. x") && !is_item(b"-x"));
    }

    #[test]
    fn hostile_ranges_are_empty() {
        assert!(text_blocks(b"", Layout::Code, 1, 9).is_empty());
        assert_eq!(text_blocks(b"a\nb", Layout::Prose, 0, 9).len(), 1);
    }
}
