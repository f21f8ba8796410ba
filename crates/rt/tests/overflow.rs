//! A stack overflow in virtual time names its task. It ends the process, so the test runs itself
//! again as a child.

use rt::{World, WorldConfig};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

const CHILD: &str = "IOPATH_TEST_OVERFLOW";

/// Uses stack for as long as it is called.
#[allow(unconditional_recursion, reason = "it is the purpose")]
fn deeper(depth: u64) -> u64 {
    let block = std::hint::black_box([depth; 64]);
    deeper(depth + 1) + block[(depth % 64) as usize]
}

#[test]
fn an_overflow_names_the_task() {
    if std::env::var_os(CHILD).is_some() {
        World::new(WorldConfig { seed: 4711, ..WorldConfig::default() }).run("main", |cx| {
            cx.spawn("shallow", |cx| cx.yield_now());
            cx.spawn("the deep one", |_| deeper(0)).join(cx)
        });
        unreachable!("the stack has an end");
    }
    let binary = std::env::current_exe().expect("this test");
    let mut child = Command::new(binary);
    child.args(["an_overflow_names_the_task", "--exact", "--nocapture"]).env(CHILD, "1");
    let output = child.output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("stack overflow in task"), "{}: {told}", output.status);
    assert!(told.contains("`the deep one`") && told.contains("seed 4711"), "{told}");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{told}");
}

/// Any other fault is nobody's stack: it goes to the handler that was there before.
#[test]
fn another_fault_is_not_taken_for_an_overflow() {
    const FAULT: &str = "IOPATH_TEST_FAULT";
    if std::env::var_os(FAULT).is_some() {
        World::new(WorldConfig::default()).run("main", |_| {
            // SAFETY: nothing is mapped at the first page, and this process is to die of it.
            unsafe { std::ptr::without_provenance::<u8>(64).read_volatile() };
        });
        std::process::exit(0);
    }
    let binary = std::env::current_exe().expect("this test");
    let mut child = Command::new(binary);
    child.args(["another_fault_is_not_taken_for_an_overflow", "--exact"]).env(FAULT, "1");
    let output = child.output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{}: {told}", output.status);
    assert!(!told.contains("stack overflow in task"), "{told}");
}
