//! The library's own thread pool, which helps with batches.
//!
//! rayon's global pool is not used: an environment variable sets its size, and if one of its
//! threads cannot be started, every use of it panics.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use llama_sieve_kernels::sync::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// The pool, and the time of the last failure to make it.
struct Threads {
    pool: Option<Arc<ThreadPool>>,
    /// The number of processors; 0 until it is determined, which reads files.
    processors: usize,
    failed: Option<Instant>,
}

static THREADS: Mutex<Threads> = Mutex::new(Threads {
    pool: None,
    processors: 0,
    failed: None,
});

/// The id of the process that first requested the pool; 0 before that.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The pause after a failure to start threads, so that not every token tries again.
const PAUSE: Duration = Duration::from_secs(1);

/// The stack size of a thread. It is set explicitly, since RUST_MIN_STACK would otherwise be read.
const STACK: usize = 2 << 20;

/// Returns the pool. It has `helpers` threads, at most one per processor. It has more if it was
/// already larger, and stays smaller if that many cannot be started. `None` if there is no pool yet
/// and that many cannot be started, and in a forked child: the parent's threads do not exist there,
/// and locks that they held stay locked.
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
