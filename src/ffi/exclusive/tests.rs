use super::*;

#[test]
fn a_value_is_had_once() {
    let value = Exclusive::new(1);
    let mut taken = value.take().expect("nobody has it");
    *taken += 1;
    assert!(value.take().is_none());
    assert!(value.take_within(Duration::from_millis(1)).is_none());
    drop(taken);
    assert_eq!(value.take().as_deref(), Some(&2));
}

#[test]
fn threads_that_wait_take_turns() {
    let (threads, times) = if cfg!(miri) { (2, 5) } else { (4, 1000) };
    let count = Exclusive::new(0);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..times {
                    let patience = Duration::from_secs(600);
                    *count.take_within(patience).expect("it comes free") += 1;
                }
            });
        }
    });
    assert_eq!(*count.take().expect("nobody has it"), threads * times);
}
