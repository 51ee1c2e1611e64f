//! Hashes numbered from 1 in order of arrival: Python's `line_index.HashNumbers`.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

pub const UNNUMBERED: u32 = 0;
const FIRST_ITEMS: usize = 64; // of a vector
const FIRST_SLOTS: usize = 1 << 10; // always a power of two
const SMALL: usize = 1 << 15; // slots up to which fewer resizes matter more than memory
const MAX_NUMBERS: usize = 1 << 31;

/// Too much was indexed for numbers of 32 bits.
#[derive(Debug)]
pub struct Full;

/// Append to a vector that is kept for long: its capacity grows by an eighth, and not by its double.
pub fn push<T>(values: &mut Vec<T>, value: T) {
    reserve(values, 1);
    values.push(value);
}

/// Reserve room for more values, as `push` does.
pub fn reserve<T>(values: &mut Vec<T>, more: usize) {
    if values.capacity() - values.len() < more {
        values.reserve_exact(more.max(values.len() / 8).max(FIRST_ITEMS));
    }
}

/// Open addressing: a slot holds a number and is found by the last bits of its hash.
pub struct HashNumbers {
    seed: RandomState, // of this index alone: nobody can prepare texts that collide
    keys: Vec<u64>,    // by number
    slots: Vec<u32>,
}

impl HashNumbers {
    pub fn new() -> Self {
        HashNumbers { seed: RandomState::new(), keys: vec![0], slots: vec![0; FIRST_SLOTS] }
    }

    pub fn size_bytes(&self) -> usize {
        8 * self.keys.capacity() + 4 * self.slots.capacity()
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// The hash of a text; equal texts of different kinds differ.
    pub fn hash(&self, text: &[u8], kind: u8) -> u64 {
        let mut hasher = self.seed.build_hasher();
        hasher.write(text);
        hasher.write_u8(kind);
        hasher.finish()
    }

    fn slot_of(&self, key: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = key as usize & mask;
        loop {
            let number = self.slots[at];
            if number == UNNUMBERED || self.keys[number as usize] == key {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    /// The hash of a number.
    pub fn key(&self, number: usize) -> u64 {
        self.keys[number]
    }

    /// The number of a hash; UNNUMBERED if it has none.
    pub fn get(&self, key: u64) -> u32 {
        self.slots[self.slot_of(key)]
    }

    /// The number of a hash, a new one if it has none, and whether it is new.
    pub fn number_of(&mut self, key: u64) -> Result<(u32, bool), Full> {
        let at = self.slot_of(key);
        let known = self.slots[at];
        if known != UNNUMBERED {
            return Ok((known, false));
        }
        if self.keys.len() >= MAX_NUMBERS {
            return Err(Full);
        }
        let number = self.keys.len() as u32;
        push(&mut self.keys, key);
        self.slots[at] = number;
        if 5 * self.keys.len() > 3 * self.slots.len() {
            self.grow();
        }
        Ok((number, true))
    }

    fn grow(&mut self) {
        let more = if self.slots.len() < SMALL { 4 } else { 2 };
        self.slots = vec![0; more * self.slots.len()];
        for number in 1..self.keys.len() {
            let at = self.slot_of(self.keys[number]);
            self.slots[at] = number as u32;
        }
    }
}
