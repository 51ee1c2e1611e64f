//! Optional accelerator of respool's forecast, behind a C ABI that Python loads by `ctypes`.
//!
//! The Python code is the definition: each function here names the one it mirrors, and property
//! tests hold both against each other (`tests/test_accelerator.py`). Nothing crosses the boundary
//! but numbers and buffers; a panic is caught and returned as an error. What a call returns in a
//! buffer is valid until the next call on the same handle.

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Mutex, OnceLock};

pub mod fast_hash;
pub mod hash_numbers;
pub mod identifiers;
pub mod index;
pub mod line_format;
pub mod line_index;
pub mod line_tokens;
pub mod rates;
pub mod selection;
pub mod text;
pub mod text_blocks;

use hash_numbers::Full;
use index::Index;
use line_index::{Found, Line, LineIndex, Search, Verdict};
use rates::Factors;
use text_blocks::Layout;

/// Python: `accelerator.ABI_VERSION`; to be changed with every change of a signature or meaning.
const ABI_VERSION: u32 = 2;

/// What a call returns when it cannot answer.
const INVALID: i64 = -1; // a pointer, number or size does not fit
const FULL: i64 = -2; // more lines or words than 32 bits can number
const PANICKED: i64 = -3;

const MAX_TEXT_BYTES: usize = 1 << 31;

/// The index of one conversation.
pub struct Handle {
    state: Mutex<State>,
}

struct State {
    index: Index,
    bytes: Vec<u8>,    // of the last answer
    numbers: Vec<u32>, // of the last answer
    needs: [Vec<f64>; 2],
}

/// A buffer of the last answer.
#[repr(C)]
pub struct Buffer {
    start: *const u8,
    bytes: usize,
}

impl Default for Buffer {
    fn default() -> Self {
        Buffer { start: std::ptr::null(), bytes: 0 }
    }
}

impl Buffer {
    /// What is in the buffer.
    ///
    /// # Safety
    /// There was no other call on the handle since.
    pub unsafe fn bytes(&self) -> &[u8] {
        slice(self.start, self.bytes).unwrap_or(&[])
    }
}

fn silence_panics() {
    static SILENT: OnceLock<()> = OnceLock::new();
    SILENT.get_or_init(|| std::panic::set_hook(Box::new(|_| {})));
}

/// Run a call on a handle's state; no panic leaves it, and none that happened is forgotten.
///
/// # Safety
/// `handle` is null or a live handle.
unsafe fn on_state(handle: *const Handle, call: impl FnOnce(&mut State) -> i64) -> i64 {
    let Some(handle) = handle.as_ref() else { return INVALID };
    let run = || match handle.state.lock() {
        Ok(mut state) => call(&mut state),
        Err(_) => PANICKED, // an earlier call stopped half way
    };
    caught(catch_unwind(AssertUnwindSafe(run)))
}

fn caught(found: Result<i64, Box<dyn Any + Send>>) -> i64 {
    found.unwrap_or_else(|panic| {
        // Dropping what was thrown could throw again.
        std::mem::forget(panic);
        PANICKED
    })
}

/// A slice over a caller's buffer; an empty one if it is null.
///
/// # Safety
/// `start` is null, or points to `count` values that live and do not change during the call.
unsafe fn slice<'a, T>(start: *const T, count: usize) -> Option<&'a [T]> {
    if count == 0 {
        return Some(&[]);
    }
    let fits = !start.is_null() && start as usize % std::mem::align_of::<T>() == 0;
    let fits = fits && count.checked_mul(std::mem::size_of::<T>()).is_some_and(|all| all <= MAX_TEXT_BYTES);
    fits.then(|| std::slice::from_raw_parts(start, count))
}

/// The same, to be written.
///
/// # Safety
/// As `slice`, and nothing else reads or writes the buffer during the call.
unsafe fn slice_mut<'a, T>(start: *mut T, count: usize) -> Option<&'a mut [T]> {
    slice(start as *const T, count)?;
    if count == 0 {
        return Some(&mut []);
    }
    Some(std::slice::from_raw_parts_mut(start, count))
}

/// # Safety
/// `found` is null or a place for a buffer.
unsafe fn answer(found: *mut Buffer, bytes: &[u8]) {
    if let Some(found) = found.as_mut() {
        *found = Buffer { start: bytes.as_ptr(), bytes: bytes.len() };
    }
}

#[no_mangle]
pub extern "C" fn respool_abi_version() -> u32 {
    ABI_VERSION
}

/// Set what `\w` and `\d` match: pairs of first and last code points.
///
/// # Safety
/// The pointers are as `slice` asks.
#[no_mangle]
pub unsafe extern "C" fn respool_set_classes(
    word: *const u32,
    word_count: usize,
    digit: *const u32,
    digit_count: usize,
) -> i64 {
    silence_panics();
    caught(catch_unwind(AssertUnwindSafe(|| {
        match (slice(word, word_count), slice(digit, digit_count)) {
            (Some(word), Some(digit)) => {
                text::set_classes(word, digit);
                0
            }
            _ => INVALID,
        }
    })))
}

/// The classes of a code point, for tests: 1 for `\w`, 2 for `\d`, 4 for `\s`.
#[no_mangle]
pub extern "C" fn respool_classes_of(point: u32) -> i64 {
    i64::from(text::is_word(point))
        + 2 * i64::from(text::is_digit(point))
        + 4 * i64::from(text::is_space(point))
}

/// A new index; null if it cannot be made.
#[no_mangle]
pub extern "C" fn respool_index_new() -> *mut Handle {
    silence_panics();
    let new = || {
        let state = State { index: Index::new(), bytes: Vec::new(), numbers: Vec::new(), needs: Default::default() };
        Box::into_raw(Box::new(Handle { state: Mutex::new(state) }))
    };
    catch_unwind(new).unwrap_or(std::ptr::null_mut())
}

/// # Safety
/// `handle` is null, or a handle that is not used again.
#[no_mangle]
pub unsafe extern "C" fn respool_index_free(handle: *mut Handle) {
    if !handle.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(handle))));
    }
}

/// # Safety
/// `handle` is null or a live handle.
#[no_mangle]
pub unsafe extern "C" fn respool_index_bytes(handle: *const Handle) -> i64 {
    on_state(handle, |state| state.index.size_bytes() as i64)
}

/// Python: `Mentions._note_result`; the number of the result, and its formats in `found`.
///
/// # Safety
/// `handle` is null or a live handle; the pointers are as `slice` asks.
#[no_mangle]
pub unsafe extern "C" fn respool_note_result(
    handle: *const Handle,
    text: *const u8,
    size: usize,
    unit: i32,
    found: *mut Buffer,
) -> i64 {
    on_state(handle, |state| {
        let Some(text) = slice(text, size) else { return INVALID };
        state.bytes.clear();
        match state.index.note_result(text, unit, &mut state.bytes) {
            Ok(number) => {
                answer(found, &state.bytes);
                number as i64
            }
            Err(Full) => FULL,
        }
    })
}

/// Python: `Mentions._take_up`; how often a call used something from an older result by now.
///
/// # Safety
/// `handle` is null or a live handle; the pointer is as `slice` asks.
#[no_mangle]
pub unsafe extern "C" fn respool_take_up(
    handle: *const Handle,
    text: *const u8,
    size: usize,
    unit: i32,
    is_call: bool,
) -> i64 {
    on_state(handle, |state| {
        let Some(text) = slice(text, size) else { return INVALID };
        match state.index.take_up(text, unit, is_call) {
            Ok(()) => i64::from(state.index.late_uses()),
            Err(Full) => FULL,
        }
    })
}

/// Python: `Mentions.last_mention`, of a file's name; -1 for never, so errors are below -1.
///
/// # Safety
/// `handle` is null or a live handle; the pointer is as `slice` asks.
#[no_mangle]
pub unsafe extern "C" fn respool_last_mention(
    handle: *const Handle,
    name: *const u8,
    size: usize,
    unit: *mut i32,
) -> i64 {
    on_state(handle, |state| match (slice(name, size), unit.as_mut()) {
        (Some(name), Some(unit)) => {
            *unit = state.index.last_mention(name);
            0
        }
        _ => INVALID,
    })
}

/// Python: `Mentions.owned`. Seven numbers: if a code is new, the bins of the share and of the
/// names that are nowhere else, lines used by calls and by messages, calls, and the last one.
///
/// # Safety
/// `handle` is null or a live handle; `found` is null or has place for seven numbers.
#[no_mangle]
pub unsafe extern "C" fn respool_refresh(
    handle: *const Handle,
    number: usize,
    found: *mut i32,
) -> i64 {
    on_state(handle, |state| match (state.index.refresh(number), slice_mut(found, 7)) {
        (Some(now), Some(found)) => {
            found[0] = i32::from(now.is_changed);
            found[1] = now.unique_bins.0 as i32;
            found[2] = now.unique_bins.1 as i32;
            found[3] = now.calls as i32;
            found[4] = now.talk as i32;
            found[5] = now.uses as i32;
            found[6] = now.last_use;
            0
        }
        _ => INVALID,
    })
}

/// The codes of a result's lines (16 bits each), behind them the ways each was used (8 bits).
///
/// # Safety
/// `handle` is null or a live handle; `found` is null or a place for a buffer.
#[no_mangle]
pub unsafe extern "C" fn respool_codes(
    handle: *const Handle,
    number: usize,
    found: *mut Buffer,
) -> i64 {
    on_state(handle, |state| {
        let Some(result) = state.index.result(number) else { return INVALID };
        let codes = state.index.codes_of(result).iter().flat_map(|code| code.to_ne_bytes());
        let used = state.index.used_of(result).iter().copied();
        state.bytes = codes.chain(used).collect();
        answer(found, &state.bytes);
        result.lines as i64
    })
}

/// Python: `Mentions._missing`: by line, if and how it is removed.
///
/// # Safety
/// `handle` is null or a live handle; the pointers are as `slice` asks.
#[no_mangle]
pub unsafe extern "C" fn respool_missing(
    handle: *const Handle,
    number: usize,
    original: *const u8,
    original_size: usize,
    text: *const u8,
    size: usize,
    found: *mut Buffer,
) -> i64 {
    on_state(handle, |state| {
        let texts = (slice(original, original_size), slice(text, size));
        let (Some(original), Some(text)) = texts else { return INVALID };
        let Some(lacks) = state.index.missing(number, original, text) else { return INVALID };
        state.bytes = lacks;
        answer(found, &state.bytes);
        0
    })
}

/// Two forecasts' factors: tables by bin, and pairs by code.
#[repr(C)]
pub struct FactorTables {
    whole: *const f64,
    whole_pairs: *const f64,
    names: *const f64,
    names_pairs: *const f64,
}

impl FactorTables {
    /// The addresses of these tables.
    pub fn new(whole: &[f64], whole_pairs: &[f64], names: &[f64], names_pairs: &[f64]) -> Self {
        FactorTables {
            whole: whole.as_ptr(),
            whole_pairs: whole_pairs.as_ptr(),
            names: names.as_ptr(),
            names_pairs: names_pairs.as_ptr(),
        }
    }
}

/// Python: `model._compute_shares`: the factors of a result's lines, as such and for names.
///
/// # Safety
/// `handle` is null or a live handle; the tables have the sizes of `rates`, `formats` and both
/// outputs have `count` values.
#[no_mangle]
pub unsafe extern "C" fn respool_line_shares(
    handle: *const Handle,
    number: usize,
    tables: *const FactorTables,
    formats: *const u8,
    whole: *mut f64,
    names: *mut f64,
    count: usize,
) -> i64 {
    on_state(handle, |state| {
        let run = || {
            let (tables, result) = (tables.as_ref()?, state.index.result(number)?);
            let flat = |start| slice(start, rates::TABLE_SIZE);
            let pairs = |start| slice(start, rates::PAIRS_SIZE);
            let of_whole = Factors::new(flat(tables.whole)?, pairs(tables.whole_pairs)?)?;
            let of_names = Factors::new(flat(tables.names)?, pairs(tables.names_pairs)?)?;
            let shares = [slice_mut(whole, count)?, slice_mut(names, count)?];
            let factors = [&of_whole, &of_names];
            rates::line_shares(&state.index, result, slice(formats, count)?, factors, shares)
        };
        run().map_or(INVALID, |()| 0)
    })
}

/// Python: the sums of `model.expected_misses`. Four numbers: of the removed lines' factors as
/// such and for names, and the largest of all lines.
///
/// # Safety
/// The pointers are as `slice` asks; `found` has place for four numbers.
#[no_mangle]
pub unsafe extern "C" fn respool_removed_sums(
    whole: *const f64,
    names: *const f64,
    count: usize,
    lacks: *const u8,
    lack_count: usize,
    compensated: bool,
    found: *mut f64,
) -> i64 {
    let run = || {
        let (whole, names) = (slice(whole, count)?, slice(names, count)?);
        let (lacks, found) = (slice(lacks, lack_count)?, slice_mut(found, 4)?);
        let removed = |some: &[f64], least: u8| {
            let those = some.iter().zip(lacks).filter(|(_, &lack)| lack >= least);
            text::sum(those.map(|(&one, _)| one), compensated)
        };
        let largest = |some: &[f64]| some.iter().copied().fold(f64::MIN, f64::max);
        found.copy_from_slice(&[removed(whole, 1), removed(names, 2), largest(whole), largest(names)]);
        Some(())
    };
    caught(catch_unwind(AssertUnwindSafe(|| run().map_or(INVALID, |()| 0))))
}

/// Python: `accelerator.ScaledFactors`, of as many lines as the result has.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct LineNeeds {
    pub factors: *const f64,
    pub ratio: f64,
    pub rate: f64,
    pub limit: f64,
}

impl LineNeeds {
    /// # Safety
    /// `factors` is as `slice` asks.
    unsafe fn compute(&self, count: usize, needs: &mut Vec<f64>) -> Option<()> {
        needs.clear();
        // Where no line is over the limit, this is the same as without it.
        let need = |&factor: &f64| self.ratio * (self.rate * factor).min(self.limit);
        needs.extend(slice(self.factors, count)?.iter().map(need));
        Some(())
    }
}

/// Python: the arguments of `select_lines`.
#[repr(C)]
pub struct SelectionRequest {
    pub text: *const u8,
    pub size: usize,
    pub formats: *const u8,
    pub whole: LineNeeds,
    pub names: LineNeeds,
    pub count: usize,
    pub gone_before: *const u8,
    pub gone_count: usize,
    pub rate: f64,
    pub head_lines: u32,
    pub note_lines: u32,
    pub layout: u8,
    pub lists_names: bool,
    pub keeps_outline: bool,
    pub is_run: bool,
    pub in_prose: bool,
    pub compensated: bool,
}

/// Python: `SelectedLines`.
#[derive(Default)]
#[repr(C)]
pub struct SelectionAnswer {
    pub text: Buffer,
    pub removed: Buffer,
    pub total: usize,
    pub risk: f64,
    pub are_parts: bool,
}

/// Python: `select_lines`; 0 if all lines stay, else 1.
///
/// # Safety
/// `handle` is null or a live handle; the request's pointers are as `slice` asks.
#[no_mangle]
pub unsafe extern "C" fn respool_select_lines(
    handle: *const Handle,
    number: usize,
    asked: *const SelectionRequest,
    found: *mut SelectionAnswer,
) -> i64 {
    on_state(handle, |state| {
        let mut run = || {
            let (asked, found) = (asked.as_ref()?, found.as_mut()?);
            let [whole, names] = &mut state.needs;
            asked.whole.compute(asked.count, whole)?;
            asked.names.compute(asked.count, names)?;
            let request = selection_request(asked, whole, names)?;
            let result = state.index.result(number)?;
            let fits = result.lines == asked.count && request.formats.len() == asked.count;
            let Some(selected) = selection::select_lines(&state.index, result, &request) else {
                return fits.then_some(0);
            };
            (state.bytes, state.numbers) = (selected.text, selected.removed);
            answer(&mut found.text, &state.bytes);
            let removed = state.numbers.as_ptr() as *const u8;
            found.removed = Buffer { start: removed, bytes: 4 * state.numbers.len() };
            (found.total, found.risk) = (selected.total, selected.risk);
            found.are_parts = selected.are_parts;
            Some(1)
        };
        run().unwrap_or(INVALID)
    })
}

/// # Safety
/// The request's pointers are as `slice` asks.
unsafe fn selection_request<'a>(
    asked: &SelectionRequest,
    whole: &'a [f64],
    names: &'a [f64],
) -> Option<selection::Request<'a>> {
    Some(selection::Request {
        text: slice(asked.text, asked.size)?,
        formats: slice(asked.formats, asked.count)?,
        whole,
        names,
        gone_before: slice(asked.gone_before, asked.gone_count)?,
        rate: asked.rate,
        lists_names: asked.lists_names,
        keeps_outline: asked.keeps_outline,
        is_run: asked.is_run,
        in_prose: asked.in_prose,
        layout: match asked.layout {
            0 => Layout::Code,
            1 => Layout::Prose,
            2 => Layout::Diff,
            3 => Layout::Hits,
            4 => Layout::Rows,
            _ => return None,
        },
        head_lines: asked.head_lines as usize,
        note_lines: asked.note_lines as usize,
        compensated: asked.compensated,
    })
}

// --- the index of lines ----------------------------------------------------------------------------

/// The index of the lines of one conversation's results and writes.
pub struct LinesHandle {
    state: Mutex<LineIndex>,
}

/// # Safety
/// `handle` is null or a live handle.
unsafe fn on_lines(handle: *const LinesHandle, call: impl FnOnce(&mut LineIndex) -> i64) -> i64 {
    let Some(handle) = handle.as_ref() else { return INVALID };
    let run = || handle.state.lock().map_or(PANICKED, |mut state| call(&mut state));
    caught(catch_unwind(AssertUnwindSafe(run)))
}

/// A new index of lines; null if it cannot be made.
#[no_mangle]
pub extern "C" fn respool_lines_new() -> *mut LinesHandle {
    silence_panics();
    let new = || Box::into_raw(Box::new(LinesHandle { state: Mutex::new(LineIndex::new()) }));
    catch_unwind(new).unwrap_or(std::ptr::null_mut())
}

/// # Safety
/// `handle` is null, or a handle that is not used again.
#[no_mangle]
pub unsafe extern "C" fn respool_lines_free(handle: *mut LinesHandle) {
    if !handle.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(handle))));
    }
}

/// # Safety
/// `handle` is null or a live handle.
#[no_mangle]
pub unsafe extern "C" fn respool_lines_bytes(handle: *const LinesHandle) -> i64 {
    on_lines(handle, |index| index.size_bytes() as i64)
}

/// Python: one part in `LineIndex.extend`.
///
/// # Safety
/// `handle` is null or a live handle; the pointer is as `slice` asks.
#[no_mangle]
pub unsafe extern "C" fn respool_lines_add(
    handle: *const LinesHandle,
    position: u32,
    text: *const u8,
    size: usize,
) -> i64 {
    on_lines(handle, |index| match slice(text, size).map(|text| index.add(position, text)) {
        Some(Ok(())) => 0,
        Some(Err(Full)) => FULL,
        None => INVALID,
    })
}

/// Python: `LineIndex.can_occur_before`; 1 or 0.
///
/// # Safety
/// `handle` is null or a live handle; the pointer is as `slice` asks.
#[no_mangle]
pub unsafe extern "C" fn respool_lines_can_occur_before(
    handle: *const LinesHandle,
    position: u32,
    text: *const u8,
    size: usize,
) -> i64 {
    on_lines(handle, |index| match slice(text, size) {
        Some(text) => i64::from(index.can_occur_before(position, text)),
        None => INVALID,
    })
}

/// Write the lines of a text as the search needs them, at most `count`; returns how many it has.
///
/// # Safety
/// `handle` is null or a live handle; the pointers are as `slice` asks.
#[no_mangle]
pub unsafe extern "C" fn respool_lines_parse(
    handle: *const LinesHandle,
    text: *const u8,
    size: usize,
    found: *mut Line,
    count: usize,
) -> i64 {
    on_lines(handle, |index| match (slice(text, size), slice_mut(found, count)) {
        (Some(text), Some(found)) => {
            let lines = index.parse(text);
            found.iter_mut().zip(&lines).for_each(|(place, line)| *place = *line);
            lines.len() as i64
        }
        _ => INVALID,
    })
}

/// A search for the next run of lines that an earlier part has.
#[repr(C)]
pub struct RunSearch {
    pub lines: *const Line,
    pub count: usize,
    pub at: usize,
    pub end: usize,
    pub verdicts: *const Verdict,
    pub verdict_count: usize,
    pub before: u32,
    pub exact: bool,
    pub is_restricted: bool,
}

/// Python: the loop of `lines_shown._find_runs`. 0: none; 1: a run (its first line, its end and
/// its part); 2: a part without a verdict (the line, nothing, the part).
///
/// # Safety
/// `handle` is null or a live handle; the search's pointers are as `slice` asks; `found` has place
/// for three numbers.
#[no_mangle]
pub unsafe extern "C" fn respool_lines_next_run(
    handle: *const LinesHandle,
    asked: *const RunSearch,
    found: *mut u64,
) -> i64 {
    on_lines(handle, |index| {
        let run = |index: &mut LineIndex| {
            let (asked, found) = (asked.as_ref()?, slice_mut(found, 3)?);
            let search = Search {
                lines: slice(asked.lines, asked.count)?,
                at: asked.at,
                end: asked.end,
                before: asked.before,
                exact: asked.exact,
                verdicts: slice(asked.verdicts, asked.verdict_count)?,
                is_restricted: asked.is_restricted,
            };
            let (outcome, numbers) = match index.next_run(&search) {
                Found::Nothing => (0, [0, 0, 0]),
                Found::Run { first, end, source } => (1, [first as u64, end as u64, source.into()]),
                Found::Unknown { at, source } => (2, [at as u64, 0, source.into()]),
            };
            found.copy_from_slice(&numbers);
            Some(outcome)
        };
        run(index).unwrap_or(INVALID)
    })
}

// --- tokens ----------------------------------------------------------------------------------------

/// Python: `tokens._find_lines`: the sum is `found`; of the other lines the first byte and the end
/// are written to `unknown`, and their number is returned.
///
/// # Safety
/// The pointers are as `slice` asks; `unknown` has place for so many numbers, `found` for one.
#[no_mangle]
pub unsafe extern "C" fn respool_known_tokens(
    original: *const u8,
    original_size: usize,
    tokens: *const u32,
    token_count: usize,
    text: *const u8,
    size: usize,
    unknown: *mut u32,
    unknown_count: usize,
    found: *mut u64,
) -> i64 {
    let run = || {
        let (original, text) = (slice(original, original_size)?, slice(text, size)?);
        let (tokens, unknown) = (slice(tokens, token_count)?, slice_mut(unknown, unknown_count)?);
        let (total, count) = line_tokens::count_known(original, tokens, text, unknown)?;
        *found.as_mut()? = total;
        Some(count as i64)
    };
    caught(catch_unwind(AssertUnwindSafe(|| run().unwrap_or(INVALID))))
}
