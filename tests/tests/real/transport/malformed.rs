//! Answers that a client must not accept. Each kind has a client, an allocator and a thread of its own, so all run at
//! the same time and each has its own log.

use super::*;
use crate::log::Log;
use scenarios::proxy::fault::Fault;
use scenarios::proxy::malformed::{Malformed, Verdict};
use tracing::Level;

/// How long each client receives nothing else, after its second request.
const FOR_A_WHILE: Duration = Duration::from_millis(600);

/// What a client logs once, when its lease has ended and no answer was good.
const LEASE_ENDED: &str = "no allocator answers and no lease is live";

/// Most bytes that a line of a log may have. An excerpt of an answer takes two hundred characters.
const LINE_MAX: usize = 600;

/// Runs `test` on each kind of malformed answer, on a thread of its own with its own runtime and log.
fn each(test: impl AsyncFn(Malformed, Log) + Sync) {
    let run = |malformed: Malformed| Log::of(Level::WARN, |log| test(malformed, log));
    std::thread::scope(|scope| {
        let run = &run;
        let threads = Malformed::ALL.map(|malformed| (malformed, scope.spawn(move || run(malformed))));
        let failed = threads.map(|(malformed, thread)| thread.join().is_err().then_some(malformed));
        let failed: Vec<Malformed> = failed.into_iter().flatten().collect();
        assert_eq!(failed, []);
    });
}

/// Returns the most requests that a client may make in `span`, if each answer deserves `verdict`.
fn requests_max(verdict: Verdict, span: Duration) -> u128 {
    match verdict {
        // Pauses double from at least 25 ms to half a second.
        Verdict::Failed => 6 + span.as_millis() / 500,
        // Pauses of 50 ms.
        Verdict::Disbelieved | Verdict::Refused => 1 + span.as_millis() / 50,
        // Pauses of a second.
        Verdict::Disputed => 1 + span.as_millis() / 1_000,
    }
}

/// Returns the words that the client logs, and how often in `span`: once for a trouble, or for each new session, and
/// never for a refusal.
fn lines_of(verdict: Verdict, span: Duration) -> (&'static str, std::ops::RangeInclusive<u128>) {
    match verdict {
        Verdict::Failed => ("the exchange with the allocator failed", 1..=1),
        Verdict::Disbelieved => ("ignored a grant that does not fit", 1..=1),
        Verdict::Disputed => ("the allocator rejects this session", 1..=1 + span.as_millis() / 1_000),
        Verdict::Refused => ("", 0..=0),
    }
}

/// Calls all the time until `done`, and returns how many calls were admitted.
async fn call_until(node: &Node, vendor: &Vendor, mut done: impl FnMut() -> bool) -> u64 {
    let (before, end) = (vendor.count(), CLOCK.now() + RECOVERY);
    while !done() {
        assert!(CLOCK.now() < end, "the client has fallen silent: {:?}", node.client.stats());
        vendor.call(&node.limit);
        sleep(CALL_EVERY).await;
    }
    vendor.count() - before
}

#[test]
fn garbage_lends_nothing_takes_nothing_and_is_not_asked_for_again_at_once() {
    each(async |malformed, log| {
        let allocator = Allocator::start().await;
        let vendor = Vendor::new(SLOW_LIMIT, SLOW_PER);
        let node = Node::start(&allocator, "a", "slow").await;
        node.recover(&vendor).await;
        node.proxy.set(Fault::Garbled(malformed));
        let (set, logged, asked) = (CLOCK.now(), log.lines().len(), node.proxy.requests());
        // With its second request, the client has judged the first answer.
        call_until(&node, &vendor, || node.proxy.requests() >= asked + 2).await;
        let (began, asked, in_hand) = (CLOCK.now(), node.proxy.requests(), node.limit.available());
        let admitted = call_until(&node, &vendor, || CLOCK.now() >= began + FOR_A_WHILE).await;
        let (asked, span) = (node.proxy.requests() - asked, CLOCK.now().since(began));
        assert!(admitted <= in_hand, "{admitted} admitted with {in_hand} in hand");
        let most = requests_max(malformed.verdict(), span);
        assert!(u128::from(asked) <= most, "{asked} requests in {span:?}, at most {most}");
        check_lines(&log.lines().split_off(logged), malformed.verdict(), CLOCK.now().since(set));
        node.proxy.set(Fault::None);
        node.recover(&vendor).await;
        assert_eq!(vendor.breach(), None);
        node.client.shutdown().await;
        until_book(&allocator, "slow", "outstanding", 0).await;
        allocator.stop().await;
    });
}

/// Checks what a client logs in a `span` of malformed answers: one line for the trouble, with no more of the answers
/// than is good to read. On a busy machine the lease ends meanwhile, which is one more.
fn check_lines(lines: &[String], verdict: Verdict, span: Duration) {
    let (ended, lines): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.contains(LEASE_ENDED));
    assert!(ended.len() <= 1, "{ended:?}");
    let longest = lines.iter().map(|line| line.len()).max().unwrap_or_default();
    let told = format!("{} lines of up to {longest} bytes, such as {:.300?}", lines.len(), lines.last());
    let (words, count) = lines_of(verdict, span);
    assert!(count.contains(&(lines.len() as u128)), "{told}, not {count:?}");
    assert!(longest <= LINE_MAX, "{told}");
    let is_ours = |line: &&String| line.contains(words) && !line.contains('\u{1b}');
    assert!(lines.iter().all(is_ours), "{told}");
}
