use std::cell::RefCell;
use std::sync::Arc;
use std::thread;

use super::PerThread;

#[derive(Default)]
struct Numbers(RefCell<Vec<usize>>, RefCell<Option<Arc<()>>>);

thread_local! {
    static FIRST: PerThread<Numbers> = const { PerThread::new() };
    static SECOND: PerThread<Numbers> = const { PerThread::new() };
}

fn push(i: usize) -> usize {
    let length = PerThread::with(&FIRST, |numbers| {
        numbers.0.borrow_mut().push(i);
        numbers.0.borrow().len()
    });
    length.expect("there is memory")
}

#[test]
fn each_thread_has_its_own_and_finds_it_again() {
    assert_eq!([push(1), push(2)], [1, 2]);
    let other = thread::spawn(|| [push(3), push(4), push(5)]);
    assert_eq!(other.join().expect("no panic"), [1, 2, 3]);
    assert_eq!(push(6), 3);
}

#[test]
fn it_ends_with_its_thread() {
    let held = Arc::new(());
    let threads = (0..8).map(|_| {
        let held = Arc::clone(&held);
        thread::spawn(move || {
            for place in [&FIRST, &SECOND] {
                let hold = |numbers: &Numbers| *numbers.1.borrow_mut() = Some(Arc::clone(&held));
                assert!(PerThread::with(place, hold).is_some());
            }
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().expect("no panic");
    }
    assert_eq!(Arc::strong_count(&held), 1);
}

/// A value whose destructor requests the thread's value of the same type, as a sampler's may.
#[derive(Default)]
struct Asks(RefCell<Option<Arc<()>>>);

thread_local! {
    static ASKS: PerThread<Asks> = const { PerThread::new() };
}

impl Drop for Asks {
    fn drop(&mut self) {
        if self.0.take().is_some() {
            assert!(PerThread::with(&ASKS, |other| other.0.borrow().is_none()) == Some(true));
        }
    }
}

#[test]
fn what_ends_may_ask_for_another() {
    let held = Arc::new(());
    let other = Arc::clone(&held);
    let hold = move || PerThread::with(&ASKS, |asks| *asks.0.borrow_mut() = Some(other));
    assert!(thread::spawn(hold).join().expect("no panic").is_some());
    assert_eq!(Arc::strong_count(&held), 1);
}
