//! The sieve on raw logits, compared with a host that builds its candidate array from them and runs
//! the built-in chain.
//!
//! Each row first checks that both sides leave the same candidates, that a trace does not change
//! the token, or that a metric is within a millionth of its value in `double` arithmetic. In all
//! rows but the batches, the logits are loaded into the caches before each call. Batches are timed
//! on the wall clock. On two threads they are timed once after other calls that run on one thread,
//! and once immediately after another batch. The floor is the maximum over the same logits in
//! single precision.
//!
//! Where the sieve is compared with a host's path, except in batches, it has two times. The first
//! is taken immediately after that path, when the sieve's code and buffers are out of the caches
//! and the processor's wide multipliers are powered down. Most processors with AVX-512 need some
//! 30 us to power them up; after a forward pass on the processor they are up, after one on a
//! graphics card they are not. The second time, "again", is that of the next call.
//!
//! The loads of the floor do not cross cache lines.
//!
//! The logits begin 16 bytes after a multiple of 64, as the C library places a vector of this size.
//! With `--aligned` they begin at a multiple of 64, as llama.cpp's own buffer does.

use std::cell::RefCell;
use std::hint::black_box;
use std::path::Path;
use std::sync::Barrier;
use std::time::Instant;
use std::{fs, process};

use half::{bf16, f16};
use llama_sieve::metrics::{self, Base, Summary};
use llama_sieve::sieve::{self, Job, Logits, Params, Sieve};
use llama_sieve::trace;
use vendor_llama_cpp::sys;

use crate::Options;
use crate::measure::{fill, median, thread_time};
use crate::report::Measurement;
use crate::samplers;
use crate::support::HostSampler;

/// Returns the microseconds of the wall clock.
fn clock() -> f64 {
    thread_local!(static START: Instant = Instant::now());
    START.with(|start| start.elapsed().as_secs_f64() * 1e6)
}

/// Returns the medians of calls that take turns for `budget` seconds, and at least 15 times. `warm`
/// runs before each call, since the calls displace each other's data in the caches.
fn alternate(
    budget: f64,
    time: fn() -> f64,
    warm: &dyn Fn(),
    calls: &mut [&mut dyn FnMut()],
) -> Vec<f64> {
    let mut times = vec![Vec::new(); calls.len()];
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < budget || times[0].len() < 15 {
        for (call, times) in calls.iter_mut().zip(&mut times) {
            warm();
            let start = time();
            call();
            times.push(time() - start);
        }
    }
    times.into_iter().map(median).collect()
}

/// Returns the logits of the candidates with which the samplers are measured.
fn input(n: usize, peaked: bool) -> Vec<f32> {
    samplers::input(n, peaked).logits()
}

/// A copy of numbers that begins at a multiple of 64 bytes, or 16 bytes after one.
struct Placed<T> {
    buffer: Vec<T>,
    start: usize,
}

impl<T: Copy> Placed<T> {
    fn new(numbers: &[T], aligned: bool) -> Self {
        let mut buffer = Vec::with_capacity(numbers.len() + 128 / size_of::<T>());
        let wanted = if aligned { 0 } else { 16 };
        let behind = (buffer.as_ptr() as usize) % 64;
        let start = (64 + wanted - behind) % 64 / size_of::<T>();
        buffer.resize(start, numbers[0]);
        buffer.extend_from_slice(numbers);
        assert_eq!(buffer[start..].as_ptr() as usize % 64, wanted);
        Self { buffer, start }
    }

    fn numbers(&self) -> &[T] {
        &self.buffer[self.start..]
    }
}

/// A host's own path: a candidate array, which is filled again for every token, and a chain.
struct HostPath {
    chain: HostSampler,
    array: Vec<sys::llama_token_data>,
    kept: usize,
    selected: i64,
}

impl HostPath {
    fn new(chain: Vec<HostSampler>) -> Self {
        Self {
            chain: HostSampler::chain(chain),
            array: Vec::new(),
            kept: 0,
            selected: -1,
        }
    }

    fn run(&mut self, logits: &[f32]) {
        fill(&mut self.array, logits);
        let mut raw = sys::llama_token_data_array {
            data: self.array.as_mut_ptr(),
            size: self.array.len(),
            selected: -1,
            sorted: false,
        };
        // SAFETY: the chain lives, the array is valid.
        unsafe { sys::llama_sampler_apply(self.chain.as_ptr(), &raw mut raw) };
        self.kept = raw.size;
        self.selected = raw.selected;
    }

    fn ids(&self) -> Vec<i32> {
        self.array[..self.kept].iter().map(|c| c.id).collect()
    }
}

/// Returns parameters in which the only stage is a temperature other than 1.
fn open() -> Params {
    Params {
        temperature: 0.8,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        penalty_repeat: 1.0,
        seed: 1,
        ..Params::default()
    }
}

/// Returns a sieve with a full window of penalised tokens.
fn warm(params: &Params, n: usize) -> Sieve {
    let mut sieve = Sieve::new(params).expect("valid parameters");
    for i in 0..64 {
        sieve.accept((i * 997 % n) as i32);
    }
    sieve
}

/// Returns the built-in chain with the stages of `params`.
fn chain(params: &Params, n: usize) -> Vec<HostSampler> {
    let mut members = Vec::new();
    // SAFETY: the constructors have no preconditions.
    unsafe {
        if params.penalty_repeat != 1.0 {
            let repeat = params.penalty_repeat;
            let penalties = sys::llama_sampler_init_penalties(n as i32, 64, repeat, 0.0, 0.0);
            let penalties = HostSampler::new(penalties);
            for i in 0..64 {
                penalties.accept((i * 997 % n) as i32);
            }
            members.push(penalties);
        }
        if params.top_k > 0 {
            members.push(HostSampler::new(sys::llama_sampler_init_top_k(
                params.top_k,
            )));
        }
        if params.top_p < 1.0 {
            members.push(HostSampler::new(sys::llama_sampler_init_top_p(
                params.top_p,
                1,
            )));
        }
        if params.min_p > 0.0 {
            members.push(HostSampler::new(sys::llama_sampler_init_min_p(
                params.min_p,
                1,
            )));
        }
        members.push(HostSampler::new(sys::llama_sampler_init_temp(
            params.temperature,
        )));
        members.push(HostSampler::new(sys::llama_sampler_init_dist(1)));
    }
    members
}

/// The input of a group of rows, and the options.
struct Bench<'a> {
    options: &'a Options,
    shape: &'static str,
    logits: &'a [f32],
    done: &'a mut dyn FnMut(Measurement),
}

impl Bench<'_> {
    fn rows(&mut self) {
        let default = Params {
            seed: 1,
            ..Params::default()
        };
        let top_p = Params {
            top_p: 0.95,
            ..open()
        };
        let min_p = Params {
            min_p: 0.05,
            ..open()
        };
        let greedy = Params {
            temperature: 0.0,
            ..open()
        };
        self.sampling("sieve, default parameters", &default);
        self.sampling("sieve, top_p(.95)", &top_p);
        self.sampling("sieve, min_p(.05)", &min_p);
        self.sampling("sieve, greedy", &greedy);
        let penalties = Params {
            penalty_repeat: 1.1,
            ..default.clone()
        };
        self.sampling("sieve, penalty_repeat(1.1)", &penalties);
        self.traced("sieve, default parameters", &default);
        self.traced("sieve, penalty_repeat(1.1)", &penalties);
        self.metrics();
        self.top_candidates();
        let halves: Vec<f16> = self.logits.iter().map(|&x| f16::from_f32(x)).collect();
        let brains: Vec<bf16> = self.logits.iter().map(|&x| bf16::from_f32(x)).collect();
        let halves = Placed::new(&halves, self.options.aligned);
        let brains = Placed::new(&brains, self.options.aligned);
        let halves = Logits::from(halves.numbers());
        let brains = Logits::from(brains.numbers());
        self.sampling_halves("sieve, f16: default parameters", &default, halves);
        self.sampling_halves("sieve, bf16: default parameters", &default, brains);
        self.sampling_halves("sieve, f16: top_p(.95)", &top_p, halves);
        self.sampling_halves("sieve, bf16: top_p(.95)", &top_p, brains);
        if self.shape == "peaked" {
            self.batch();
        }
    }

    fn wanted(&self, name: &str) -> bool {
        self.options.wants(name)
    }

    /// Adds a row. The times are in microseconds; those of a batch are divided by its number of
    /// sequences.
    fn push(&mut self, name: &str, ours: f64, theirs: Option<f64>, floor: f64, sequences: usize) {
        let each = 1e3 / sequences as f64;
        (self.done)(Measurement {
            part: "sieve".into(),
            name: name.into(),
            n: self.logits.len(),
            shape: self.shape.into(),
            ours_ns: ours * each,
            theirs_ns: theirs.map(|theirs| theirs * each),
            floor_ns: Some(floor * 1e3),
        });
    }

    /// Measures a call of this library that has no counterpart in the host.
    fn alone(&mut self, name: &str, mut ours: impl FnMut()) {
        if !self.wanted(name) {
            return;
        }
        let logits = self.logits;
        let mut floor = || floor(logits);
        let times = alternate(
            self.options.budget() / 2.0,
            thread_time,
            &|| self::floor(logits),
            &mut [&mut ours, &mut floor],
        );
        self.push(name, times[0], None, times[1], 1);
    }

    /// Measures a call of this library in turn with the host's path.
    fn beside(&mut self, name: &str, input: Logits<'_>, ours: impl FnMut(), theirs: &mut HostPath) {
        let logits = self.logits;
        let ours = RefCell::new(ours);
        let mut first = || ours.borrow_mut()();
        let mut again = || ours.borrow_mut()();
        let mut floor = || floor(logits);
        let mut theirs = || theirs.run(logits);
        let calls: &mut [&mut dyn FnMut()] = &mut [&mut first, &mut again, &mut floor, &mut theirs];
        let budget = self.options.budget() / 2.0;
        let warm = || {
            self::floor(logits);
            warm_up(input);
        };
        let times = alternate(budget, thread_time, &warm, calls);
        self.push(name, times[0], Some(times[3]), times[2], 1);
        self.push(&format!("{name}, again"), times[1], None, times[2], 1);
    }

    fn sampling(&mut self, name: &str, params: &Params) {
        if !self.wanted(name) {
            return;
        }
        let logits = self.logits;
        let mut sieve = warm(params, logits.len());
        let mut theirs = HostPath::new(chain(params, logits.len()));
        let token = sieve.sample(logits).expect("there is a candidate");
        theirs.run(logits);
        assert_eq!(token, theirs.array[theirs.selected as usize].id, "{name}");
        let ids: Vec<i32> = sieve.candidates().iter().map(|c| c.id).collect();
        assert!(ids == theirs.ids(), "{name}: other candidates");
        let ours = || {
            black_box(sieve.sample(black_box(logits)).is_ok());
        };
        self.beside(name, logits.into(), ours, &mut theirs);
    }

    /// Measures sampling from logits in half precision. The host's path begins with the same logits
    /// already widened to `float`.
    fn sampling_halves(&mut self, name: &str, params: &Params, halves: Logits<'_>) {
        if !self.wanted(name) {
            return;
        }
        let wide: Vec<f32> = (0..halves.len()).map(|i| halves.at(i)).collect();
        let mut sieve = warm(params, halves.len());
        let mut theirs = HostPath::new(chain(params, halves.len()));
        sieve.sample(halves).expect("there is a candidate");
        theirs.run(&wide);
        let ids: Vec<i32> = sieve.candidates().iter().map(|c| c.id).collect();
        let mut again = warm(params, halves.len());
        again.sample(&wide).expect("there is a candidate");
        let of_wide: Vec<i32> = again.candidates().iter().map(|c| c.id).collect();
        assert!(
            ids == of_wide && ids == theirs.ids(),
            "{name}: other candidates"
        );
        let ours = || {
            black_box(sieve.sample(black_box(halves)).is_ok());
        };
        self.beside(name, halves, ours, &mut theirs);
    }

    /// Measures sampling while a trace is written to a file, and the same without a trace.
    fn traced(&mut self, name: &str, params: &Params) {
        let (name, without) = (format!("{name}, traced"), format!("{name}, untraced"));
        if !self.wanted(&name) {
            return;
        }
        let logits = self.logits;
        let mut sieve = warm(params, logits.len());
        let mut recorded = sieve.clone();
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("traced-%p.jsonl");
        let file = file.to_string_lossy();
        trace::to_file(&file, trace::Options::default()).expect("the file can be written");
        // Delivering lines suppresses the trace, as within a function that receives them.
        let token = trace::delivering(true, || sieve.sample(logits));
        assert_eq!(token, recorded.sample(logits), "{name}");
        let mut ours = || {
            black_box(recorded.sample(black_box(logits)).is_ok());
        };
        let mut untraced = || {
            trace::delivering(true, || black_box(sieve.sample(black_box(logits)).is_ok()));
        };
        let mut floor = || floor(logits);
        let times = alternate(
            self.options.budget(),
            thread_time,
            &|| self::floor(logits),
            &mut [&mut ours, &mut floor, &mut untraced],
        );
        trace::stop();
        let _ = fs::remove_file(file.replace("%p", &process::id().to_string()));
        self.push(&name, times[0], None, times[1], 1);
        self.push(&without, times[2], None, times[1], 1);
    }

    fn top_candidates(&mut self) {
        let name = "sieve, top_candidates(20)";
        if !self.wanted(name) {
            return;
        }
        let logits = self.logits;
        // SAFETY: the constructors have no preconditions.
        let members = unsafe {
            vec![
                HostSampler::new(sys::llama_sampler_init_dist(1)),
                HostSampler::new(sys::llama_sampler_init_top_k(20)),
            ]
        };
        let mut theirs = HostPath::new(members);
        let mut top = Vec::new();
        sieve::top_candidates(logits, 20, &mut top).expect("there is a candidate");
        theirs.run(logits);
        let ids: Vec<i32> = top.iter().map(|c| c.id).collect();
        assert!(ids == theirs.ids(), "{name}: other candidates");
        let ours = || {
            black_box(sieve::top_candidates(black_box(logits), 20, &mut top).is_ok());
        };
        self.beside(name, logits.into(), ours, &mut theirs);
    }

    fn metrics(&mut self) {
        let logits = self.logits;
        let (entropy, log_sum_exp) = reference(logits);
        let ours = metrics::entropy(logits, Base::Nats).expect("defined");
        assert!((f64::from(ours) - entropy).abs() < 1e-6 * entropy);
        let ours = Summary::of(logits).log_sum_exp();
        assert!((ours - log_sum_exp).abs() < 1e-6 * log_sum_exp.abs());
        self.alone("sieve, entropy", || {
            black_box(metrics::entropy(black_box(logits), Base::Nats));
        });
        self.alone("sieve, log-sum-exp", || {
            black_box(Summary::of(black_box(logits)).log_sum_exp());
        });
    }

    /// Measures 32 sequences with logits of their own, on one and on two threads, and the speed of
    /// two threads that share only the machine.
    fn batch(&mut self) {
        const N: usize = 32;
        if !self.wanted("sieve, batch of 32") {
            return;
        }
        let n = self.logits.len();
        let placed: Vec<Placed<f32>> = (0..N)
            .map(|i| {
                let mut logits = self.logits.to_vec();
                logits.rotate_left(i * 997 % n);
                Placed::new(&logits, self.options.aligned)
            })
            .collect();
        let all: Vec<&[f32]> = placed.iter().map(Placed::numbers).collect();
        let params = Params {
            seed: 1,
            ..Params::default()
        };
        let mut sieves: Vec<Sieve> = (0..N).map(|_| warm(&params, n)).collect();
        let mut hosts: Vec<HostPath> = (0..N).map(|_| HostPath::new(chain(&params, n))).collect();
        let mut tokens = [(); 2].map(|()| Vec::new());
        for (threads, tokens) in [1, 2].into_iter().zip(&mut tokens) {
            let mut sieves = sieves.clone();
            run_batch(&mut sieves, &all, threads, tokens);
        }
        assert_eq!(tokens[0], tokens[1], "the threads changed the tokens");
        let first: Vec<i32> = {
            sieves[0].sample(all[0]).expect("there is a candidate");
            sieves[0].candidates().iter().map(|c| c.id).collect()
        };
        hosts[0].run(all[0]);
        assert!(
            first == hosts[0].ids(),
            "sieve, batch of 32: other candidates"
        );

        let (first, second) = sieves.split_at(N / 2);
        let mut halves = [first.to_vec(), second.to_vec()];
        let (mut a, mut b, mut c) = (sieves.clone(), sieves.clone(), sieves);
        let [mut to_a, mut to_b, mut to_c] = [(); 3].map(|()| Vec::new());
        let budget = self.options.budget();
        let (logits, rows) = (self.logits, &all);
        let mut floor = || floor(logits);
        let mut one = || run_batch(&mut a, rows, 1, &mut to_a);
        let mut two = || run_batch(&mut b, rows, 2, &mut to_b);
        let mut at_once = || run_batch(&mut c, rows, 2, &mut to_c);
        let mut theirs = || {
            for (host, &logits) in hosts.iter_mut().zip(rows) {
                host.run(logits);
            }
        };
        let calls: &mut [&mut dyn FnMut()] =
            &mut [&mut one, &mut floor, &mut theirs, &mut two, &mut at_once];
        let times = alternate(budget, clock, &|| (), calls);
        let bound = independent(&mut halves, rows, budget);
        self.push(
            "sieve, batch of 32, 1 thread",
            times[0],
            Some(times[2]),
            times[1],
            N,
        );
        self.push(
            "sieve, batch of 32, 2 threads",
            times[3],
            Some(times[2]),
            times[1],
            N,
        );
        self.push(
            "sieve, batch of 32, 2 threads, back to back",
            times[4],
            Some(times[2]),
            times[1],
            N,
        );
        // The speed of two threads that share only the machine is an upper limit.
        self.push(
            "sieve, batch of 32, 2 threads apart",
            times[0] / bound,
            None,
            times[1],
            N,
        );
    }
}

fn run_batch(sieves: &mut [Sieve], logits: &[&[f32]], threads: usize, tokens: &mut Vec<i32>) {
    let pairs = sieves.iter_mut().zip(logits);
    let mut jobs: Vec<Job<'_>> = pairs.map(|(s, &l)| Job::new(s, Logits::from(l))).collect();
    sieve::sample_batch(&mut jobs, threads);
    tokens.clear();
    tokens.extend(jobs.iter().map(|job| job.token.clone().unwrap_or(-1)));
}

/// Returns the speed of two threads, each with its half of the sequences, as a multiple of that of
/// one thread. The threads wait for each other only at the beginning. One thread and two threads
/// run for half of `budget` seconds each.
fn independent(halves: &mut [Vec<Sieve>; 2], logits: &[&[f32]], budget: f64) -> f64 {
    let run = |sieves: &mut [Sieve], logits: &[&[f32]]| {
        let start = Instant::now();
        let mut samples = 0;
        while start.elapsed().as_secs_f64() < budget / 2.0 {
            for (sieve, &logits) in sieves.iter_mut().zip(logits) {
                black_box(sieve.sample(logits).is_ok());
                samples += 1;
            }
        }
        f64::from(samples) / start.elapsed().as_secs_f64()
    };
    let (first, second) = logits.split_at(logits.len() / 2);
    let alone = run(&mut halves[0], first);
    let barrier = Barrier::new(2);
    let [a, b] = halves;
    let together = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            barrier.wait();
            run(b, second)
        });
        barrier.wait();
        let mine = run(a, first);
        mine + other.join().expect("no panic")
    });
    together / alone
}

/// Loads logits into the caches.
fn warm_up(logits: Logits<'_>) {
    black_box(black_box(logits).max());
}

/// Computes the plain maximum.
fn floor(logits: &[f32]) {
    black_box(Logits::from(black_box(logits)).max());
}

/// Returns entropy and log-sum-exp, computed in `double`.
fn reference(logits: &[f32]) -> (f64, f64) {
    let max = f64::from(logits.iter().copied().fold(f32::MIN, f32::max));
    let d = logits.iter().map(|&x| f64::from(x) - max);
    let mass: f64 = d.clone().map(f64::exp).sum();
    let spread: f64 = d.map(|d| -d * d.exp()).sum();
    (mass.ln() + spread / mass, max + mass.ln())
}

/// Measures every row.
pub fn run(options: &Options, done: &mut dyn FnMut(Measurement)) {
    let sizes: &[usize] = if options.quick {
        &[128_256]
    } else {
        &[32_000, 128_256, 262_144]
    };
    let sizes = options.size.as_ref().map_or(sizes, std::slice::from_ref);
    for &n in sizes {
        for (shape, peaked) in [("peaked", true), ("flat", false)] {
            Bench {
                options,
                shape,
                logits: Placed::new(&input(n, peaked), options.aligned).numbers(),
                done,
            }
            .rows();
        }
    }
}
