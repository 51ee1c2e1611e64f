//! Hostile calls through the C ABI: `fuzz SECONDS SEED`; for a build with a sanitizer.
//!
//! Texts are put together from what the code looks at, with broken UTF-8, NULs and very long lines
//! in between; numbers and sizes are right, wrong or huge. Nothing may be read or written outside
//! the buffers, and no call may panic.

use std::time::{Duration, Instant};

use respool_native::line_index::{Line, Verdict};
use respool_native::{
    respool_codes, respool_index_free, respool_index_new, respool_last_mention,
    respool_known_tokens, respool_line_shares, respool_lines_add, respool_lines_can_occur_before,
    respool_lines_free, respool_lines_new, respool_lines_next_run, respool_lines_parse,
    respool_missing, respool_note_result, respool_refresh, respool_removed_sums,
    respool_select_lines, respool_take_up, Buffer, FactorTables, LineNeeds, RunSearch, SelectionAnswer,
    SelectionRequest,
};

const PIECES: &[&[u8]] = &[
    b"def ", b"class x", b"import os", b"error", b"FAILED", b" ", b"    ", b"\t", b"\r", b"\0", b"\n",
    b"\n\n", b"\\n", b"\\\\n", b"\\\"", b"\x1b[31m", b"\x1b[", b"12\xe2\x86\x92", b"  7: ", b"9| ",
    b"src/a.py:12:", b"a/b_c.d", b"x.y.z", b"/", b"//", b"#", b"##  x", b"===", b"---", b"- x", b"|--|",
    b"```", b"case x:", b"case f(a):", b"default:", b"@@ -1 +1 @@", b"diff --git a b", b"*** Add File",
    b"</out>", b"<out>", b"[", b"]", b"{", b"}", b"(", b")", b";", b",", b"\"", b"'''", b"\"\"\"", b"=> ",
    b"\xed\xa0\x80", b"\xff", b"\xe2\x86", b"\xf0\x9f\x98\x80", b"\xc2\xa0", b"\xe3\x80\x80", b"\xc3\x97",
    b"deadbeef01", b"0x12ab34cd", b"user@host.com", b"WordInCamelCase", b"word", b"2026-11-18", b".", b":",
];

struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below.max(1)
    }

    fn text(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        let pieces = match self.next(8) {
            0 => 0,
            1 => 600,
            _ => 80,
        };
        for _ in 0..self.next(pieces + 1) {
            let piece = PIECES[self.next(PIECES.len())];
            let times = if self.next(40) == 0 { self.next(900) } else { 1 };
            for _ in 0..times {
                text.extend_from_slice(piece);
            }
            if self.next(4) == 0 {
                text.push(b'\n');
            }
        }
        if self.next(30) == 0 {
            text.truncate(self.next(text.len()));
        }
        text
    }

    /// A number that is as a rule below `count`.
    fn number(&mut self, count: usize) -> usize {
        match self.next(12) {
            0 => usize::MAX - self.next(3),
            1 => self.next(1 << 20),
            _ => self.next(count),
        }
    }
}

struct Case {
    random: Random,
    results: Vec<(Vec<u8>, Vec<u8>)>, // text and formats
}

fn check(status: i64) -> i64 {
    assert!(status >= -2, "a panic crossed into the answer");
    status
}

impl Case {
    /// One conversation: results and calls are added, and all is asked.
    fn run(&mut self) {
        let index = respool_index_new();
        let tables: Vec<f64> = (0..68).map(|at| 0.5 + at as f64 / 100.0).collect();
        let pairs: Vec<f64> = (0..6480).map(|at| (at % 7) as f64 / 3.0).collect();
        let mut buffer = Buffer::default();
        for unit in 0..self.random.next(14) as i32 {
            let text = self.random.text();
            let (start, size) = (text.as_ptr(), text.len());
            unsafe {
                if self.random.next(2) == 0 {
                    check(respool_take_up(index, start, size, unit, unit % 2 == 0));
                    let mut last = 0;
                    check(respool_last_mention(index, start, size.min(20), &mut last));
                    continue;
                }
                if check(respool_note_result(index, start, size, unit, &mut buffer)) >= 0 {
                    let formats = buffer.bytes().to_vec();
                    self.results.push((text, formats));
                }
                let number = self.random.number(self.results.len());
                let mut state = [0i32; 7];
                check(respool_refresh(index, number, state.as_mut_ptr()));
                check(respool_codes(index, number, &mut buffer));
                std::hint::black_box(buffer.bytes().iter().fold(0u8, |all, one| all ^ one));
                self.ask(index, number, &tables, &pairs);
            }
        }
        unsafe { respool_index_free(index) };
    }

    unsafe fn ask(
        &mut self,
        index: *mut respool_native::Handle,
        number: usize,
        tables: &[f64],
        pairs: &[f64],
    ) {
        let any = self.random.next(self.results.len());
        let (text, formats) = self.results[if number < self.results.len() { number } else { any }].clone();
        let other = self.random.text();
        let mut buffer = Buffer::default();
        let start = text.as_ptr();
        check(respool_missing(
            index, number, start, text.len(), other.as_ptr(), other.len(), &mut buffer,
        ));
        let lacks = buffer.bytes().to_vec();
        let count = formats.len().saturating_sub(usize::from(self.random.next(20) == 0));
        let (mut whole, mut names) = (vec![0.01; count], vec![0.02; count]);
        let factors = FactorTables::new(tables, pairs, tables, pairs);
        check(respool_line_shares(
            index, number, &factors, formats.as_ptr(), whole.as_mut_ptr(), names.as_mut_ptr(), count,
        ));
        let tokens: Vec<u32> = (0..self.random.next(30) as u32).collect();
        let mut spans = vec![0u32; 2 * self.random.next(90)];
        let mut total = 0;
        let known = respool_known_tokens(
            start, text.len(), tokens.as_ptr(), tokens.len(), other.as_ptr(), other.len(),
            spans.as_mut_ptr(), spans.len(), &mut total,
        );
        for span in spans[..2 * check(known).max(0) as usize].chunks(2) {
            assert!(span[0] <= span[1] && span[1] as usize <= other.len());
        }
        let mut sums = [0.0; 4];
        check(respool_removed_sums(
            whole.as_ptr(), names.as_ptr(), count, lacks.as_ptr(), lacks.len(), true, sums.as_mut_ptr(),
        ));
        let gone: Vec<u8> = (0..count).map(|_| u8::from(self.random.next(9) == 0)).collect();
        let gone_count = if self.random.next(2) == 0 { 0 } else { gone.len() };
        let request = SelectionRequest {
            text: start,
            size: text.len(),
            formats: formats.as_ptr(),
            whole: LineNeeds { factors: whole.as_ptr(), ratio: 2.0, rate: 0.01, limit: 1.0 },
            names: LineNeeds { factors: names.as_ptr(), ratio: 1.0, rate: f64::MAX, limit: 0.5 },
            count,
            gone_before: gone.as_ptr(),
            gone_count,
            rate: [1e-5, 1e-3, 1e-1, f64::NAN][self.random.next(4)],
            head_lines: self.random.number(count + 1) as u32,
            note_lines: if self.random.next(3) == 0 { self.random.number(count + 1) as u32 } else { 0 },
            layout: self.random.next(6) as u8,
            lists_names: self.random.next(2) == 0,
            keeps_outline: self.random.next(2) == 0,
            is_run: self.random.next(2) == 0,
            in_prose: self.random.next(2) == 0,
            compensated: self.random.next(2) == 0,
        };
        let mut answer = SelectionAnswer::default();
        if check(respool_select_lines(index, number, &request, &mut answer)) == 1 {
            let all = answer.text.bytes().iter().chain(answer.removed.bytes());
            std::hint::black_box(all.fold(0u8, |all, one| all ^ one));
        }
    }

    fn run_lines(&mut self) {
        let index = respool_lines_new();
        let mut repeated = self.random.text();
        for position in 0..self.random.next(10) as u32 {
            let mut text = self.random.text();
            text.extend_from_slice(&repeated);
            if self.random.next(3) == 0 {
                repeated = text.clone();
                repeated.truncate(4_000);
            }
            let (start, size) = (text.as_ptr(), text.len());
            let count = text.iter().filter(|&&byte| byte == b'\n').count() + 1;
            let mut lines = vec![Line::default(); count];
            unsafe {
                check(respool_lines_add(index, position, start, size));
                check(respool_lines_can_occur_before(index, position + 1, start, size));
                check(respool_lines_parse(index, start, size, lines.as_mut_ptr(), count));
            }
            let verdicts: Vec<Verdict> = (0..position)
                .map(|source| Verdict { source, min_lines: self.random.next(4) as u32 })
                .collect();
            let search = RunSearch {
                lines: lines.as_ptr(),
                count,
                at: self.random.number(count),
                end: self.random.number(count + 2),
                verdicts: verdicts.as_ptr(),
                verdict_count: verdicts.len(),
                before: position,
                exact: self.random.next(2) == 0,
                is_restricted: self.random.next(2) == 0,
            };
            let mut found = [0u64; 3];
            unsafe { check(respool_lines_next_run(index, &search, found.as_mut_ptr())) };
        }
        unsafe { respool_lines_free(index) };
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|one| one.parse::<u64>().unwrap_or(1));
    let seconds = Duration::from_secs(arguments.next().unwrap_or(60));
    let seed = arguments.next().unwrap_or(1);
    let started = Instant::now();
    let mut cases = 0u64;
    while started.elapsed() < seconds {
        let state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ cases.wrapping_mul(0xd1b5_4a32_d192_ed03);
        let mut case = Case { random: Random(state | 1), results: Vec::new() };
        case.run();
        case.run_lines();
        cases += 1;
    }
    println!("{cases} conversations in {} s, seed {seed}: no fault", seconds.as_secs());
}
