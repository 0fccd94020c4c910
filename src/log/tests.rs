use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;
use crate::errors::LLAMA_SIEVE_ERROR_INVALID;

/// A lock for tests: the sink belongs to the process, so only one test may use it at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Returns the messages of this thread while `body` runs.
fn told(body: impl FnOnce()) -> Vec<String> {
    let _alone = ALONE.lock();
    let usual = sink();
    let (send, receive) = mpsc::channel();
    let this = thread::current().id();
    set_sink(Some(Arc::new(move |_, text| {
        if thread::current().id() == this {
            let _ = send.send(text.to_owned());
        }
    })));
    body();
    set_sink(usual);
    receive.try_iter().collect()
}

#[test]
fn messages_wait_for_the_outermost_call_to_return() {
    let texts = told(|| {
        let outer = Inside::enter();
        let inner = Inside::enter();
        warn("said inside");
        drop(inner);
        assert!(PerThread::with(&MESSAGES, |messages| messages.borrow().is_empty()) == Some(false));
        assert_eq!(last_error::get(), "said inside");
        last_error::set(LLAMA_SIEVE_ERROR_INVALID, "a later one");
        drop(outer);
        assert!(PerThread::with(&MESSAGES, |messages| messages.borrow().is_empty()) == Some(true));
        assert_eq!(last_error::get(), "a later one");
        warn("said outside");
    });
    assert_eq!(texts, ["said inside", "said outside"]);
}

#[test]
fn what_a_call_says_beyond_a_number_is_counted() {
    let texts = told(|| {
        let _inside = Inside::enter();
        for i in 0..WAITING + 3 {
            warn(&i.to_string());
        }
    });
    assert_eq!(texts.len(), WAITING + 1);
    let last = "3 more messages of the same call are left out";
    assert_eq!(texts.last().map(String::as_str), Some(last));
}

#[test]
fn a_sink_that_says_something_is_not_called_for_that() {
    let _alone = ALONE.lock();
    let usual = sink();
    let (send, receive) = mpsc::channel();
    let this = thread::current().id();
    set_sink(Some(Arc::new(move |_, text| {
        if thread::current().id() != this {
            return;
        }
        send.send(text.to_owned()).expect("the test listens");
        warn("within");
        drop(Inside::enter());
    })));
    warn("without");
    set_sink(usual);
    assert_eq!(receive.try_iter().collect::<Vec<_>>(), ["without"]);
    assert_eq!(last_error::get(), "without");
}

#[test]
fn a_sink_is_gone_when_it_has_been_replaced() {
    let _alone = ALONE.lock();
    let usual = sink();
    let (entered, wait_for_entry) = mpsc::channel();
    let (leave, wait_to_leave) = mpsc::channel::<()>();
    let wait_to_leave = Mutex::new(wait_to_leave);
    set_sink(Some(Arc::new(move |_, text| {
        if text != "slow" {
            return;
        }
        entered.send(()).expect("the test listens");
        let _ = wait_to_leave.lock().recv_timeout(Duration::from_secs(60));
    })));
    let slow = thread::spawn(|| warn("slow"));
    wait_for_entry.recv().expect("the sink is called");
    let (replaced, wait_for_replaced) = mpsc::channel();
    let replaces = thread::spawn(move || {
        set_sink(usual);
        replaced.send(()).expect("the test listens");
    });
    let early = wait_for_replaced.recv_timeout(Duration::from_millis(100));
    assert!(early.is_err(), "the sink was still running");
    leave.send(()).expect("the sink waits");
    wait_for_replaced.recv().expect("nothing runs any more");
    slow.join().expect("no panic");
    replaces.join().expect("no panic");
}

/// Checks that the thread that shares its work logs all messages, since a sink that is called
/// earlier would find the objects of the call in use.
#[test]
#[cfg_attr(miri, ignore = "the threads of the pool do not end")]
fn messages_of_helpers_are_logged_by_the_thread_that_made_the_call() {
    let n = WAITING / 2;
    let mut items = vec![0; n];
    let mut before_the_end = None;
    let texts = told(|| {
        let inside = Inside::enter();
        crate::sieve::share(&mut items, 3, |_| {
            thread::sleep(Duration::from_millis(1));
            let _inside = Inside::enter();
            warn("from a share of the work");
        });
        before_the_end = PerThread::with(&MESSAGES, |messages| messages.borrow().len());
        drop(inside);
    });
    assert_eq!(before_the_end, Some(n));
    assert_eq!(texts, vec!["from a share of the work"; n]);
}

#[test]
fn messages_of_helpers_beyond_a_number_are_counted() {
    let texts = told(|| {
        let _inside = Inside::enter();
        let helpers = OfHelpers::default();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    helpers.keep(|| (0..WAITING + 3).for_each(|i| warn(&i.to_string())));
                });
            }
        });
        helpers.log();
    });
    assert_eq!(texts.len(), WAITING + 1);
    let last = format!(
        "{} more messages of the same call are left out",
        WAITING + 6
    );
    assert_eq!(texts.last(), Some(&last));
}

/// Checks that a part of another call, which a waiting helper thread may run, does not take the
/// messages of the first.
#[test]
fn a_part_of_another_call_leaves_the_messages_of_the_first() {
    let (outer, inner) = (OfHelpers::default(), OfHelpers::default());
    let texts = told(|| {
        outer.keep(|| {
            warn("outer");
            inner.keep(|| warn("inner"));
        });
        inner.log();
        warn("between");
        outer.log();
    });
    assert_eq!(texts, ["inner", "between", "outer"]);
}
