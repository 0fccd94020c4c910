//! The threads that help with a batch: a pool of the library's own, as large as was asked for.
//!
//! Not rayon's global one: its size is an environment variable's, and where a thread of it cannot
//! be started whoever asks for it panics, then and ever after.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use llama_sieve_kernels::sync::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// The pool, and when it last could not be made.
struct Threads {
    pool: Option<Arc<ThreadPool>>,
    /// 0 before they are counted, which reads files.
    processors: usize,
    failed: Option<Instant>,
}

static THREADS: Mutex<Threads> = Mutex::new(Threads {
    pool: None,
    processors: 0,
    failed: None,
});

/// The id of the process that first asked for the pool; 0 before.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The pause before a system that has no thread left is asked again, rather than at each token.
const PAUSE: Duration = Duration::from_secs(1);

/// The stack size of a thread. Named, as the library would otherwise read RUST_MIN_STACK.
const STACK: usize = 2 << 20;

/// Returns the pool, with `helpers` threads or as many as there are processors, or with more, or
/// with fewer where no more can be started. `None` where none can, and in a forked child: its
/// parent's threads are not there, and what they held at the fork stays held.
pub(super) fn of(helpers: usize) -> Option<Arc<ThreadPool>> {
    let this = process::id();
    let first = PROCESS.compare_exchange(0, this, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_err_and(|process| process != this) {
        return None;
    }
    let mut threads = THREADS.lock();
    threads.grow_to(helpers);
    threads.pool.clone()
}

impl Threads {
    fn grow_to(&mut self, helpers: usize) {
        let size = self.pool.as_ref().map_or(0, |p| p.current_num_threads());
        if size >= helpers || self.failed.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        if self.processors == 0 {
            self.processors = thread::available_parallelism().map_or(1, |n| n.get());
        }
        let wanted = helpers.min(self.processors);
        if size >= wanted {
            return;
        }
        match build(wanted) {
            Some(pool) => self.pool = Some(Arc::new(pool)),
            None => self.failed = Some(Instant::now()),
        }
    }
}

fn build(size: usize) -> Option<ThreadPool> {
    let builder = ThreadPoolBuilder::new().num_threads(size);
    let builder = builder.stack_size(STACK);
    let name = |i| format!("llama-sieve-{i}");
    builder.thread_name(name).build().ok()
}
