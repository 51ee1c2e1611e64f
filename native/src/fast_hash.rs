//! A fast hash for sets of texts that live no longer than a call.
//!
//! It is keyed by a secret of the process: nobody can prepare texts that collide.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

pub type FastMap<K, V> = HashMap<K, V, FastState>;
pub type FastSet<K> = HashSet<K, FastState>;

/// Two secret numbers, the same in all of a process.
#[derive(Clone, Copy)]
pub struct FastState(u64, u64);

impl Default for FastState {
    fn default() -> Self {
        static SECRETS: OnceLock<FastState> = OnceLock::new();
        *SECRETS.get_or_init(|| {
            let state = RandomState::new();
            FastState(state.hash_one(1u8) | 1, state.hash_one(2u8) | 1)
        })
    }
}

impl BuildHasher for FastState {
    type Hasher = FastHasher;

    fn build_hasher(&self) -> FastHasher {
        FastHasher { state: self.0, secret: self.1 }
    }
}

pub struct FastHasher {
    state: u64,
    secret: u64,
}

impl FastHasher {
    fn mix(&mut self, value: u64) {
        let product = u128::from(self.state ^ value) * u128::from(self.secret);
        self.state = (product as u64 ^ (product >> 64) as u64).wrapping_add(self.secret);
    }
}

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut value = [0; 8];
            value.copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(value));
        }
        let mut rest = [0; 8];
        rest[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        self.mix(u64::from_le_bytes(rest) ^ (bytes.len() as u64).rotate_left(32));
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }

    fn finish(&self) -> u64 {
        self.state
    }
}
