// SPDX-License-Identifier: GPL-2.0

//! A fuzzer that follows coverage, without anything but the compiler: `scripts/fuzz` builds it so that each branch of the
//! code counts how often it is taken (SanitizerCoverage of LLVM). An input that takes a branch as no other did is kept, and
//! new inputs are made from those.
//!
//! The first byte of an input says what it is for:
//!
//! | target  | the rest                                                                                             |
//! |---------|------------------------------------------------------------------------------------------------------|
//! | parser  | a packet                                                                                             |
//! | hostile | settings and steps of one endpoint: packets of any kind, posts, time (`tests/hostile.rs`)            |
//! | pair    | settings, posts and the link of two endpoints, which must both get their work done (`tests/pair.rs`) |
//!
//! When the bytes are used up, a fixed sequence of random numbers takes over.

// Both test files bring the model host.
#![allow(dead_code, clippy::duplicate_mod)]

use std::collections::HashSet;
use std::hash::{
    DefaultHasher,
    Hash,
    Hasher, //
};
use std::panic::{
    catch_unwind,
    AssertUnwindSafe, //
};
use std::path::{
    Path,
    PathBuf, //
};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{
    Duration,
    Instant, //
};

use rxo_transport::wire::{
    Headers,
    MAX_HEADER_LEN, //
};

#[path = "../../tests/hostile.rs"]
mod hostile;
#[path = "../../tests/pair.rs"]
mod pair;

use hostile::common::Rng;

/// The longest input that is made.
const MAX_LEN: usize = 2048;

/// The counters that the compiler put into the code: where they begin, and how many.
static COUNTERS: OnceLock<(usize, usize)> = OnceLock::new();

/// Called by the instrumented code before `main`.
///
/// # Safety
///
/// `start` to `stop` must be the counters of this program, which live as long as it.
#[no_mangle]
unsafe extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    // Once for each crate, with the same range, as the linker joins them.
    let _ = COUNTERS.set((start as usize, stop as usize - start as usize));
}

/// Calls `f` with the counters.
fn with_counters<R>(f: impl FnOnce(&mut [u8]) -> R) -> R {
    let (start, len) = COUNTERS.get().copied().unwrap_or((0, 0));
    if len == 0 {
        return f(&mut []);
    }
    // SAFETY: By the promise of the compiler. There is one thread, and `f` is not instrumented code that would count
    // meanwhile: it only looks at the slice; a count that is lost would do no harm.
    f(unsafe { std::slice::from_raw_parts_mut(start as *mut u8, len) })
}

/// Counts that are not told apart share a bit.
fn bit(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 1 << 1,
        3 => 1 << 2,
        4..=7 => 1 << 3,
        8..=15 => 1 << 4,
        16..=31 => 1 << 5,
        32..=127 => 1 << 6,
        _ => 1 << 7,
    }
}

/// What is understood survives being written and read again.
fn parser(bytes: &[u8]) {
    let total = bytes.len();
    let Ok(p) = Headers::parse(bytes, total) else {
        return;
    };
    assert_eq!(
        p.header_len + p.payload_len + usize::from(p.headers.bth.pad),
        total
    );
    let mut out = [0; MAX_HEADER_LEN];
    let n = p.headers.emit(&mut out);
    assert_eq!(n, p.header_len);
    let again = Headers::parse(&out[..n], total).expect("what was parsed can be parsed");
    assert_eq!(again, p);
    // Any shorter slice is refused or understood alike.
    for cut in 0..n {
        assert!(Headers::parse(&bytes[..cut], total).is_err());
    }
}

fn run(input: &[u8]) {
    let Some((target, rest)) = input.split_first() else {
        return;
    };
    match target % 8 {
        0 | 1 => parser(rest),
        2..=5 => hostile::hostile_with(Rng::of_bytes(rest), 0),
        _ => {
            let half = rest.len() / 2;
            let weather = pair::common::Rng::of_bytes(&rest[half..]);
            pair::soak_with(
                pair::common::Rng::of_bytes(&rest[..half]),
                weather,
                0,
                false,
            );
        }
    }
}

/// A new input from old ones.
fn mutate(rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let n = corpus.len() as u64;
    if n == 0 || rng.permille(10) {
        return (0..1 + rng.below(200)).map(|_| rng.next() as u8).collect();
    }
    // The later ones took more to find.
    let at = rng.below(n).max(rng.below(n)) as usize;
    let mut v = corpus[at].clone();
    for _ in 0..1 + rng.below(4) {
        let len = v.len() as u64;
        let at = rng.below(len.max(1)) as usize;
        match rng.below(8) {
            0 if len > 0 => v[at] ^= 1 << rng.below(8),
            1 if len > 0 => v[at] = rng.next() as u8,
            2 if len > 0 => v[at] = v[at].wrapping_add([1, 255, 128, 16][rng.below(4) as usize]),
            3 => v.insert(at, rng.next() as u8),
            4 if len > 1 => {
                let end = (at + 1 + rng.below(16) as usize).min(v.len());
                v.drain(at..end);
            }
            5 => {
                let other = &corpus[rng.below(n) as usize];
                let from = rng.below(other.len() as u64) as usize;
                v.truncate(at);
                v.extend_from_slice(&other[from..]);
            }
            6 if len > 1 => {
                let end = (at + 1 + rng.below(32) as usize).min(v.len());
                let copy = v[at..end].to_vec();
                let to = rng.below(len) as usize;
                v.splice(to..to, copy);
            }
            _ => v.extend((0..1 + rng.below(32)).map(|_| rng.next() as u8)),
        }
    }
    v.truncate(MAX_LEN);
    v
}

fn name(prefix: &str, input: &[u8]) -> String {
    let mut h = DefaultHasher::new();
    input.hash(&mut h);
    format!("{prefix}-{:016x}", h.finish())
}

/// The inputs in a directory, shortest first.
fn load(dir: &Path) -> Vec<Vec<u8>> {
    let mut found: Vec<Vec<u8>> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with("input-"))
        .filter_map(|e| std::fs::read(e.path()).ok())
        .collect();
    found.sort_by_key(Vec::len);
    found
}

struct Fuzzer {
    dir: PathBuf,
    rng: Rng,
    corpus: Vec<Vec<u8>>,
    /// By counter: the bits of all counts seen.
    seen: Vec<u8>,
    runs: u64,
}

impl Fuzzer {
    /// Runs an input, and keeps it if it did something new. False: it failed.
    fn step(&mut self, input: Vec<u8>, store: bool) -> bool {
        with_counters(|c| c.fill(0));
        let result = catch_unwind(AssertUnwindSafe(|| run(&input)));
        self.runs += 1;
        if result.is_err() {
            let file = self.dir.join(name("crash", &input));
            let _ = std::fs::write(&file, &input);
            println!("not ok: this input breaks a rule: {}", file.display());
            println!("scripts/fuzz --replay {}", file.display());
            return false;
        }
        let mut new = false;
        with_counters(|c| {
            self.seen.resize(c.len(), 0);
            for (count, seen) in c.iter().zip(&mut self.seen) {
                new |= bit(*count) & !*seen != 0;
                *seen |= bit(*count);
            }
        });
        if new {
            if store {
                let _ = std::fs::write(self.dir.join(name("input", &input)), &input);
            }
            self.corpus.push(input);
        }
        true
    }

    fn tell(&self, begin: Instant) {
        let reached = self.seen.iter().filter(|s| **s != 0).count();
        println!(
            "{:4} s: {} runs, {} inputs kept, {reached} of {} branches",
            begin.elapsed().as_secs(),
            self.runs,
            self.corpus.len(),
            self.seen.len()
        );
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("--replay") if args.len() == 3 => {
            let input = std::fs::read(&args[2]).expect("the input");
            run(&input);
            println!("ok: nothing is broken");
            return ExitCode::SUCCESS;
        }
        Some(_) if args.len() == 3 => (),
        _ => {
            eprintln!("usage: fuzz SECONDS DIRECTORY | --replay FILE");
            return ExitCode::FAILURE;
        }
    }
    let limit = Duration::from_secs(args[1].parse().expect("seconds"));
    let dir = PathBuf::from(&args[2]);
    std::fs::create_dir_all(&dir).expect("the directory");
    if with_counters(|c| c.is_empty()) {
        eprintln!("fuzz: built without counters: scripts/fuzz knows how");
        return ExitCode::FAILURE;
    }
    let begin = Instant::now();
    let seed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |d| d.as_nanos() as u64);
    let mut f = Fuzzer {
        rng: Rng::new(seed),
        corpus: Vec::new(),
        seen: Vec::new(),
        runs: 0,
        dir,
    };
    let mut known = HashSet::new();
    for input in load(&f.dir) {
        if known.insert(input.clone()) && !f.step(input, false) {
            return ExitCode::FAILURE;
        }
    }
    println!("{} inputs of earlier times", known.len());
    let mut told = 0;
    while begin.elapsed() < limit {
        let input = mutate(&mut f.rng, &f.corpus);
        if !f.step(input, true) {
            return ExitCode::FAILURE;
        }
        if begin.elapsed().as_secs() >= told + 10 {
            told = begin.elapsed().as_secs();
            f.tell(begin);
        }
    }
    f.tell(begin);
    println!("ok: no input broke a rule");
    ExitCode::SUCCESS
}
