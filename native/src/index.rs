//! Index of identifiers and lines: Python's `mentions.Mentions` and `line_codes.WordIndex`.

use std::borrow::Cow;

use crate::fast_hash::{FastMap, FastSet};
use crate::hash_numbers::{push, reserve, Full, HashNumbers, UNNUMBERED};
use crate::identifiers::{
    all_candidates, candidates, for_each_file, for_each_identifier, is_timing, sort_of, WHOLE,
};
use crate::line_format::encode_format;
use crate::text::{
    char_count, find, has_long_line, has_parts, is_longer, split_lines, strip_color, strip_prefixes,
    trim, unescape,
};

const MIN_LINE_CHARS: usize = 16; // shorter lines are never needed as such
const MAX_RARE_COUNT: u8 = 3; // results; a word in more of them says little
const FRESH: i32 = 2; // requests
const NOWHERE: i32 = i32::MAX; // after all lines
const MAX_SIZE: usize = 60_000;
const MAX_WORDS: usize = u32::MAX as usize;
const MAX_LINES: usize = NOWHERE as usize - 1;

/// What one bin of each feature adds to a line's code (Python: `line_codes._WORTH`).
const WORTH: [u16; 7] = [1620, 405, 135, 45, 9, 3, 1];
/// The number of line codes.
pub const CODES: usize = 6480;
const SHOWN: [u8; 5] = [0, 0, 1, 2, 2];
/// Python: `features.ONLY_HERE`.
const ONLY_HERE: usize = 3;

/// The sort of a word, and the flag beside it.
const SORT: u8 = 3;
const HAS_EVENT: u8 = 4;

/// Kinds of texts that are numbered apart.
const OF_NAME: u8 = 0;
const OF_LINE: u8 = 1;

/// A line was used by a later call, or by a later message.
const BY_CALL: u8 = 1;
const BY_TALK: u8 = 2;

/// A line that a shorter text lacks, and one whose names went with it.
const LINE_REMOVED: u8 = 1;
const NAME_REMOVED: u8 = 2;

/// One result (Python: `ResultWords`, `ResultMentions`, part of `ResultState`).
pub struct IndexedResult {
    pub first: usize,
    pub lines: usize,
    unit: i32,
    is_encoded: bool,
    seen_events: u32,
    calls: u32,
    talk: u32,
    uses: u32,
    last_use: i32,
}

impl IndexedResult {
    pub fn range(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.lines
    }
}

/// The state of a result at one moment, for Python's `features._current_state`.
pub struct Refreshed {
    pub is_changed: bool,
    pub unique_bins: (usize, usize),
    pub calls: u32,
    pub talk: u32,
    pub uses: u32,
    pub last_use: i32,
}

/// A name that only one line has: its hash, and its characters with a separator.
pub struct OwnName {
    pub key: u64,
    pub size: u16,
}

pub struct Index {
    numbers: HashNumbers,
    // By word; number 0 is unused.
    home: Vec<i32>,      // first line of the newest result with the word
    mentioned: Vec<i32>, // last unit in which a call or message mentioned it
    count: Vec<u8>,
    sorts: Vec<u8>, // with a flag for words in `last_event`
    sizes: Vec<u16>,
    last_event: FastMap<u32, u32>, // the last event of a word, from 1 on; few words have one
    times: Vec<u8>,       // scratch: occurrences in one result, saturating
    // By line.
    starts: Vec<u32>, // plus one at the end
    changed: Vec<u8>,
    codes: Vec<u16>,
    shown: Vec<u8>,
    used: Vec<u8>,
    words: Vec<u32>,
    events: u32,
    results: Vec<IndexedResult>,
    late_uses: u32,
}

impl Index {
    pub fn new() -> Self {
        Index {
            numbers: HashNumbers::new(),
            home: vec![NOWHERE],
            mentioned: vec![-1],
            count: vec![0],
            sorts: vec![WHOLE],
            sizes: vec![0],
            last_event: FastMap::default(),
            times: vec![0],
            starts: vec![0],
            changed: Vec::new(),
            codes: Vec::new(),
            shown: Vec::new(),
            used: Vec::new(),
            words: Vec::new(),
            events: 0,
            results: Vec::new(),
            late_uses: 0,
        }
    }

    /// Bytes in memory, with spare capacity.
    pub fn size_bytes(&self) -> usize {
        let of_words = self.home.capacity() * 8 + self.times.capacity() + self.last_event.capacity() * 9;
        let of_words = of_words + self.count.capacity() * 2 + self.sizes.capacity() * 2;
        let of_lines = self.starts.capacity() * 4 + self.changed.capacity() * 3;
        let of_lines = of_lines + self.codes.capacity() * 2 + self.words.capacity() * 4;
        let of_results = self.results.capacity() * std::mem::size_of::<IndexedResult>();
        self.numbers.size_bytes() + of_words + of_lines + of_results
    }

    pub fn late_uses(&self) -> u32 {
        self.late_uses
    }

    pub fn result(&self, number: usize) -> Option<&IndexedResult> {
        self.results.get(number)
    }

    pub fn codes_of(&self, result: &IndexedResult) -> &[u16] {
        &self.codes[result.range()]
    }

    /// The lines of a result that calls (or messages) used.
    pub fn used_of(&self, result: &IndexedResult) -> &[u8] {
        &self.used[result.range()]
    }

    pub fn is_by_call(used: u8) -> bool {
        used & BY_CALL != 0
    }

    pub fn is_by_talk(used: u8) -> bool {
        used & BY_TALK != 0
    }

    // --- words ---------------------------------------------------------------------------------

    fn number_of_name(&mut self, atom: &[u8]) -> Result<u32, Full> {
        let (number, is_new) = self.numbers.number_of(self.numbers.hash(atom, OF_NAME))?;
        if is_new {
            let size = if is_timing(atom) { 0 } else { char_count(atom) + 2 };
            self.add_word(sort_of(atom), size.min(MAX_SIZE) as u16);
        }
        Ok(number)
    }

    fn number_of_line(&mut self, whole: &[u8]) -> Result<u32, Full> {
        let (number, is_new) = self.numbers.number_of(self.numbers.hash(whole, OF_LINE))?;
        if is_new {
            self.add_word(WHOLE, 0);
        }
        Ok(number)
    }

    /// The number of a name, UNNUMBERED if it is nowhere.
    pub fn find_name(&self, atom: &[u8]) -> u32 {
        self.numbers.get(self.numbers.hash(atom, OF_NAME))
    }

    fn add_word(&mut self, sort: u8, size: u16) {
        push(&mut self.home, -1);
        push(&mut self.mentioned, -1);
        push(&mut self.count, 0);
        push(&mut self.sorts, sort);
        push(&mut self.sizes, size);
        push(&mut self.times, 0);
    }

    /// Python: `Mentions._words_of`; the words go to the end of `found`.
    fn words_of(&mut self, line: &[u8], whole: &[u8], found: &mut Vec<u32>) -> Result<(), Full> {
        let is_short = !is_longer(whole, MIN_LINE_CHARS - 1);
        found.push(if is_short { UNNUMBERED } else { self.number_of_line(whole)? });
        for raw in candidates(line) {
            let mut full = false;
            for_each_identifier(raw, |atom| match self.number_of_name(atom) {
                Ok(number) => found.push(number),
                Err(Full) => full = true,
            });
            if full {
                return Err(Full);
            }
        }
        Ok(())
    }

    /// Python: `Mentions.last_mention`, of a file's name.
    pub fn last_mention(&self, name: &[u8]) -> i32 {
        self.mentioned[self.find_name(name) as usize]
    }

    // --- results -------------------------------------------------------------------------------

    /// Python: `Mentions._note_result`; returns the number of the result.
    pub fn note_result(
        &mut self,
        text: &[u8],
        unit: i32,
        formats: &mut Vec<u8>,
    ) -> Result<usize, Full> {
        let lines = split_lines(text);
        let wholes = strip_prefixes(text, &lines);
        let first = self.codes.len();
        if first + lines.len() > MAX_LINES || self.words.len() + text.len() > MAX_WORDS {
            return Err(Full); // a text has fewer words than bytes
        }
        let are_parts = has_parts(text, lines.len());
        let mut words = Vec::new();
        for (line, whole) in lines.iter().zip(&wholes) {
            formats.push(encode_format(line, whole));
            let plain = if are_parts { unescape(line) } else { Cow::Borrowed(*line) };
            words.clear();
            self.words_of(&plain, whole, &mut words)?;
            self.add_line(&words, first as i32);
        }
        self.results.push(IndexedResult {
            first,
            lines: lines.len(),
            unit,
            is_encoded: false,
            seen_events: 0,
            calls: 0,
            talk: 0,
            uses: 0,
            last_use: -1,
        });
        Ok(self.results.len() - 1)
    }

    /// Python: the body of `WordIndex.add`; `first` is the first line of its result.
    fn add_line(&mut self, words: &[u32], first: i32) {
        let line = self.codes.len() as i32;
        push(&mut self.changed, 0);
        push(&mut self.codes, 0);
        push(&mut self.used, 0);
        reserve(&mut self.words, words.len());
        self.words.extend_from_slice(words);
        push(&mut self.starts, self.words.len() as u32);
        for &word in words {
            let before = self.home[word as usize];
            if before < 0 {
                self.home[word as usize] = line;
                self.count[word as usize] = 1;
            } else if before < first {
                self.move_word(word as usize, line);
            }
        }
        push(&mut self.shown, SHOWN[self.count[words[0] as usize] as usize]);
    }

    /// Python: `WordIndex._move`.
    fn move_word(&mut self, word: usize, line: i32) {
        let (before, count) = (self.home[word], self.count[word]);
        self.home[word] = line;
        if count <= MAX_RARE_COUNT {
            self.count[word] = count + 1;
        }
        if self.mentioned[word] < 0 {
            self.changed[before as usize] = 1;
        } else if count == MAX_RARE_COUNT {
            self.add_event(word); // it is no longer rare
        }
    }

    fn add_event(&mut self, word: usize) {
        self.events = self.events.saturating_add(1);
        self.sorts[word] |= HAS_EVENT;
        self.last_event.insert(word as u32, self.events);
    }

    // --- calls and messages --------------------------------------------------------------------

    /// Python: `Mentions._take_up`.
    pub fn take_up(&mut self, text: &[u8], unit: i32, is_call: bool) -> Result<(), Full> {
        let lines = split_lines(text);
        let wholes = strip_prefixes(text, &lines);
        let mut words = Vec::new();
        for (line, whole) in lines.iter().zip(&wholes) {
            words.clear();
            self.words_of(line, whole, &mut words)?;
            for &word in words.iter().filter(|&&word| word != UNNUMBERED) {
                self.taken_from(word as usize, unit, is_call);
                self.mention(word as usize, unit);
            }
            let mut full = false;
            for_each_file(whole, |name| match self.number_of_name(name) {
                Ok(number) => self.mention(number as usize, unit),
                Err(Full) => full = true,
            });
            if full {
                return Err(Full);
            }
        }
        Ok(())
    }

    /// Python: `WordIndex.mention`.
    fn mention(&mut self, word: usize, unit: i32) {
        if self.mentioned[word] < 0 && self.home[word] >= 0 {
            if self.count[word] <= MAX_RARE_COUNT || self.sorts[word] & SORT == WHOLE {
                self.add_event(word);
            } else {
                self.changed[self.home[word] as usize] = 1;
            }
        }
        self.mentioned[word] = unit;
    }

    /// Python: `Mentions._taken_from`.
    fn taken_from(&mut self, word: usize, unit: i32, is_call: bool) {
        let (place, is_new) = (self.home[word], self.mentioned[word] < 0);
        if place < 0 || !(is_new || self.count[word] <= MAX_RARE_COUNT) {
            return;
        }
        let place = place as usize;
        let number = self.results.partition_point(|one| one.first <= place);
        let Some(result) = number.checked_sub(1).and_then(|at| self.results.get_mut(at)) else {
            return;
        };
        let used = &mut self.used[place];
        if !is_call {
            result.talk += u32::from(*used & BY_TALK == 0);
            *used |= BY_TALK;
            return;
        }
        result.calls += u32::from(*used & BY_CALL == 0);
        *used |= BY_CALL;
        if is_new && (result.uses == 0 || result.last_use != unit) {
            result.uses += 1;
            result.last_use = unit;
            self.late_uses += u32::from(unit - result.unit > FRESH);
        }
    }

    // --- codes of lines ------------------------------------------------------------------------

    /// Python: `Mentions.owned`: encode what changed, and say how the result stands.
    pub fn refresh(&mut self, number: usize) -> Option<Refreshed> {
        let result = self.results.get(number)?;
        let (range, is_first, seen) = (result.range(), !result.is_encoded, result.seen_events);
        let mut is_changed = is_first;
        if is_first {
            self.changed[range.clone()].fill(1);
        } else if seen < self.events {
            self.flag_changed(range.clone(), seen);
        }
        if self.changed[range.clone()].contains(&1) {
            is_changed |= self.encode_changed(range.clone());
        }
        let unique_bins = self.unique_bins(&self.codes[range]);
        let result = &mut self.results[number];
        result.is_encoded = true;
        result.seen_events = self.events;
        Some(Refreshed {
            is_changed,
            unique_bins,
            calls: result.calls,
            talk: result.talk,
            uses: result.uses,
            last_use: result.last_use,
        })
    }

    /// Python: `WordIndex._flag_changed`.
    fn flag_changed(&mut self, lines: std::ops::Range<usize>, seen: u32) {
        for line in lines {
            let words = self.starts[line] as usize..self.starts[line + 1] as usize;
            let is_later = |&word: &u32| {
                self.sorts[word as usize] & HAS_EVENT != 0
                    && self.last_event.get(&word).is_some_and(|&event| event > seen)
            };
            if self.words[words].iter().any(is_later) {
                self.changed[line] = 1;
            }
        }
    }

    /// Python: `WordIndex._encode`, of the lines that are flagged.
    fn encode_changed(&mut self, lines: std::ops::Range<usize>) -> bool {
        let all = self.starts[lines.start] as usize..self.starts[lines.end] as usize;
        for at in all.clone() {
            let times = &mut self.times[self.words[at] as usize];
            *times = times.saturating_add(1);
        }
        let mut is_changed = false;
        for line in lines {
            if self.changed[line] != 0 {
                self.changed[line] = 0;
                let code = self.code(line);
                is_changed |= self.codes[line] != code;
                self.codes[line] = code;
            }
        }
        for at in all {
            self.times[self.words[at] as usize] = 0;
        }
        is_changed
    }

    /// Python: `WordIndex._code` and `_code_of_names`.
    fn code(&self, line: usize) -> u16 {
        let (begin, end) = (self.starts[line] as usize, self.starts[line + 1] as usize);
        let (whole, place) = (self.words[begin], line as i32);
        let mut code = 0;
        if whole != UNNUMBERED {
            let whole = whole as usize;
            let is_home = self.home[whole] == place;
            let own = if self.mentioned[whole] >= 0 { 2 } else { 1 + 2 * u16::from(is_home) };
            code = own * WORTH[0];
        }
        let (mut names, mut repeated, mut mentions) = ([0u32; 4], 0, 0u32);
        for &word in &self.words[begin + 1..end] {
            let word = word as usize;
            if self.mentioned[word] >= 0 {
                mentions += u32::from(self.count[word] <= MAX_RARE_COUNT);
            } else if self.home[word] == place {
                names[(self.sorts[word] & SORT) as usize] += 1;
                repeated = self.times[word].max(repeated);
            }
        }
        if repeated > 0 {
            code += names[1].min(3) as u16 * WORTH[1] + names[2].min(2) as u16 * WORTH[2];
            code += names[3].min(2) as u16 * WORTH[3];
            code += [0, 1, 2, 5].iter().filter(|&&limit| limit < repeated).count() as u16 * WORTH[4];
        }
        code + mentions.min(2) as u16 * WORTH[5] + u16::from(self.shown[line])
    }

    /// Python: `features._unique_bins`.
    fn unique_bins(&self, codes: &[u16]) -> (usize, usize) {
        let (mut only, mut short, mut names) = (0usize, 0usize, 0usize);
        for &code in codes {
            let bins = unique_bins_of(code);
            only += usize::from(bins[0] == ONLY_HERE);
            short += usize::from(bins[0] == 0);
            names += bins[1] + bins[2];
        }
        let share = only as f64 / (codes.len() - short).max(1) as f64;
        let shares = [0.1, 0.3, 0.6, 0.9].iter().filter(|&&limit| limit < share).count();
        (shares, [0, 3, 12, 40].iter().filter(|&&limit| limit < names).count())
    }

    // --- what a shorter text lacks -------------------------------------------------------------

    /// Python: `Mentions._missing`.
    pub fn missing(&self, number: usize, original: &[u8], text: &[u8]) -> Option<Vec<u8>> {
        let result = self.results.get(number)?;
        let before: Vec<Cow<[u8]>> = split_lines(original).into_iter().map(strip_color).collect();
        let before: Vec<&[u8]> = before.iter().map(|line| &**line).collect();
        let (text, original) = (strip_color(text), strip_color(original));
        let lines = split_lines(&text);
        let stripped = strip_prefixes(&text, &lines);
        let were = strip_prefixes(&original, &before);
        // Each line, and whether the original has it.
        let mut stays: FastMap<&[u8], bool> = FastMap::default();
        stays.extend(stripped.iter().map(|line| (&**line, false)));
        // Without its number a line may begin like a place.
        let shown: FastSet<&[u8]> =
            lines.iter().map(|line| trim(line)).filter(|line| !stays.contains_key(line)).collect();
        let lack_of = |line: &Cow<[u8]>| match stays.get_mut(&**line) {
            Some(is_old) => {
                *is_old = true;
                0
            }
            None => 2 * u8::from(!shown.contains(&**line)),
        };
        let mut lacks: Vec<u8> = were.iter().map(lack_of).collect();
        lacks.truncate(result.lines);
        let by_line = is_searched_by_line(&text, &lines) || is_searched_by_line(&original, &before);
        let mut named = FastSet::default();
        if by_line {
            for line in &lines {
                self.find_names(candidates(&unescape(line)), &mut named);
            }
        } else {
            for (line, _) in stays.iter().filter(|(_, &is_old)| !is_old) {
                self.find_names(all_candidates(line), &mut named);
            }
            for (at, _) in lacks.iter().enumerate().filter(|(_, &lack)| lack == 0) {
                named.extend(self.words_of_line(result.first + at));
            }
        }
        for (at, lack) in lacks.iter_mut().enumerate().filter(|(_, lack)| **lack != 0) {
            let own = self.words_of_line(result.first + at);
            let is_named = !own.is_empty() && own.iter().all(|word| named.contains(word));
            *lack = if is_named { LINE_REMOVED } else { NAME_REMOVED };
        }
        Some(lacks)
    }

    fn find_names<'a>(&self, raws: impl Iterator<Item = &'a [u8]>, named: &mut FastSet<u32>) {
        for raw in raws {
            for_each_identifier(raw, |atom| {
                named.insert(self.find_name(atom));
            });
        }
        named.remove(&UNNUMBERED);
    }

    /// Python: `WordIndex.words_of_line`.
    fn words_of_line(&self, line: usize) -> &[u32] {
        &self.words[self.starts[line] as usize + 1..self.starts[line + 1] as usize]
    }

    // --- names of removed lines ----------------------------------------------------------------

    /// Python: `Mentions.own_names`.
    pub fn own_names(&self, line: usize) -> Vec<OwnName> {
        let is_own = |&at: &usize| {
            self.home[at] == line as i32 && self.mentioned[at] < 0 && self.sizes[at] > 0
        };
        let own = self.words_of_line(line).iter().map(|&word| word as usize).filter(is_own);
        own.map(|at| OwnName { key: self.numbers.key(at), size: self.sizes[at] }).collect()
    }

    /// Python: `Mentions.spelled`.
    pub fn spelled<'a>(&self, own: &[OwnName], line: &'a [u8]) -> Vec<&'a [u8]> {
        let Some(shortest) = own.iter().map(|one| one.size).min() else { return Vec::new() };
        let mut found: Vec<&[u8]> = Vec::new();
        for raw in candidates(line).filter(|raw| raw.len() + 2 >= usize::from(shortest)) {
            for_each_identifier(raw, |atom| {
                let key = self.numbers.hash(atom, OF_NAME);
                let is_own = own.iter().any(|one| one.key == key);
                if is_own && !found.iter().any(|one| find(one, atom).is_some()) {
                    found.push(atom);
                }
            });
        }
        found
    }
}

/// Python: `mentions._is_searched_by_line`.
fn is_searched_by_line(text: &[u8], lines: &[&[u8]]) -> bool {
    has_parts(text, lines.len()) || has_long_line(lines)
}

/// Python: `line_codes.UNIQUE_BINS[code]`.
pub fn unique_bins_of(code: u16) -> [usize; 7] {
    let mut rest = code;
    WORTH.map(|worth| {
        let bin = rest / worth;
        rest %= worth;
        bin as usize
    })
}
