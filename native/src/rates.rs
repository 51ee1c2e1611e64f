//! Rates of lines: Python's `features._line_bins` and `model.Weights.of_lines`.

use crate::index::{unique_bins_of, Index, IndexedResult, CODES};
use crate::line_format::{INDENTS, LENGTHS};

/// The bins of each feature of a line, in the order of Python's `features.LINE_FEATURES`.
const BINS: [usize; 14] = [4, 4, 3, 3, 5, 3, 3, 7, 7, 7, 4, 9, 5, 4];
/// The factors that a table holds.
pub const TABLE_SIZE: usize = 68;
/// The factors of pairs of features, by code.
pub const PAIRS_SIZE: usize = CODES;
const UNIQUE: usize = 7; // features that a code holds
const NEARS: usize = 7; // the first feature of a line's neighbourhood
const PLACE: usize = 10;
const FORM: usize = 11;
const NEAR_STEPS: [usize; 5] = [0, 2, 5, 12, 30];
/// Python: `features.WAS_MENTIONED`, as a feature of a code.
const MENTIONS: usize = 5;

/// The factors of lines in a result: by bin, and by code for pairs of features.
pub struct Factors<'a> {
    tables: [&'a [f64]; 14],
    pairs: &'a [f64],
}

impl<'a> Factors<'a> {
    /// Cut a flat table into those of its features; None if a size is wrong.
    pub fn new(flat: &'a [f64], pairs: &'a [f64]) -> Option<Self> {
        if flat.len() != TABLE_SIZE || pairs.len() != PAIRS_SIZE {
            return None;
        }
        let mut at = 0;
        let tables = BINS.map(|bins| {
            at += bins;
            &flat[at - bins..at]
        });
        Some(Factors { tables, pairs })
    }

    /// Python: `Weights.of_lines`; the multiplications have its order.
    fn of_line(&self, line: &Line, has_near: &[bool; 3], far: f64) -> f64 {
        let mut found = self.pairs[line.code as usize];
        for (table, bin) in self.tables[..UNIQUE].iter().zip(unique_bins_of(line.code)) {
            found *= table[bin];
        }
        let (form, length, indent) = line.format;
        found *= self.tables[FORM][form] * self.tables[FORM + 1][length]
            * self.tables[FORM + 2][indent];
        found *= self.tables[PLACE][line.place];
        for (near, &bin) in line.near.iter().enumerate() {
            if has_near[near] {
                found *= self.tables[NEARS + near][usize::from(bin)];
            }
        }
        far * found
    }
}

struct Line {
    code: u16,
    format: (usize, usize, usize),
    place: usize,
    near: [u8; 3],
}

/// The factors of each line, for lines as such and for names.
pub fn line_shares(
    index: &Index,
    result: &IndexedResult,
    formats: &[u8],
    factors: [&Factors; 2],
    shares: [&mut [f64]; 2],
) -> Option<()> {
    let (codes, used) = (index.codes_of(result), index.used_of(result));
    let total = codes.len();
    if formats.len() != total || shares.iter().any(|one| one.len() != total) {
        return None;
    }
    let nears = [
        near_bins(total, |line| Index::is_by_call(used[line])),
        near_bins(total, |line| unique_bins_of(codes[line])[MENTIONS] > 0),
        near_bins(total, |line| Index::is_by_talk(used[line])),
    ];
    let has_near = [0, 1, 2].map(|near| nears[near].first().is_some_and(|&bin| bin > 0));
    let far = factors.map(|one| {
        let absent = (0..3).filter(|&near| !has_near[near]);
        absent.fold(1.0, |far, near| far * one.tables[NEARS + near][0])
    });
    let [whole, names] = shares;
    for at in 0..total {
        let line = Line {
            code: codes[at].min(CODES as u16 - 1),
            format: format_bins(formats[at])?,
            place: place_of(at, total),
            near: [nears[0][at], nears[1][at], nears[2][at]],
        };
        whole[at] = factors[0].of_line(&line, &has_near, far[0]);
        names[at] = factors[1].of_line(&line, &has_near, far[1]);
    }
    Some(())
}

/// Python: `line_codes.LINE_FORMATS[format]`.
fn format_bins(format: u8) -> Option<(usize, usize, usize)> {
    let format = usize::from(format);
    let form = format / (LENGTHS * INDENTS);
    (form < BINS[FORM]).then_some((form, format / INDENTS % LENGTHS, format % INDENTS))
}

/// Python: `features._places`.
fn place_of(line: usize, total: usize) -> usize {
    let last = total.saturating_sub(15).min(5);
    match line {
        0..=2 => 0,
        3..=14 => 1,
        _ if line >= total - last => 2,
        _ => 3,
    }
}

/// Python: `features._distance_bins`: the distance to the nearest such line, as a bin.
fn near_bins(total: usize, is_place: impl Fn(usize) -> bool) -> Vec<u8> {
    let mut distances = vec![usize::MAX; total];
    let mut since = usize::MAX;
    for (line, distance) in distances.iter_mut().enumerate() {
        since = if is_place(line) { 0 } else { since.saturating_add(1) };
        *distance = since;
    }
    since = usize::MAX;
    for distance in distances.iter_mut().rev() {
        since = if *distance == 0 { 0 } else { since.saturating_add(1) };
        *distance = since.min(*distance);
    }
    let bin = |far: usize| 1 + NEAR_STEPS.iter().filter(|&&step| step < far).count() as u8;
    distances.into_iter().map(|far| if far == usize::MAX { 0 } else { bin(far) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(near_bins(4, |_| false), [0, 0, 0, 0]);
        assert_eq!(near_bins(8, |line| line == 1), [2, 1, 2, 2, 3, 3, 3, 4]);
    }

    #[test]
    fn places() {
        let found: Vec<usize> = (0..17).map(|line| place_of(line, 17)).collect();
        assert_eq!(found[..4], [0, 0, 0, 1]);
        assert_eq!(found[14..], [1, 2, 2]);
        assert_eq!(place_of(15, 30), 3);
    }
}
