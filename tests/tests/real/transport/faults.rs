//! One fault at a time. In each test, callers want more than there is, on a node whose network fails and on one whose
//! network is well. Each test ends with books that agree exactly with the vendor's count.

use super::*;
use scenarios::proxy::dress::Dress;
use scenarios::proxy::fault::Fault;

/// Long enough for leases to end and be asked for again many times.
const FOR_A_WHILE: Duration = Duration::from_secs(1);

/// Two nodes, one of which meets a fault. Each has a vendor of its own until the end, when one vendor judges both.
struct Trial {
    allocator: Allocator,
    victim: Node,
    of_victim: Arc<Vendor>,
    witness: Node,
    of_witness: Arc<Vendor>,
}

impl Trial {
    async fn start() -> Trial {
        let allocator = Allocator::start().await;
        let victim = Node::start(&allocator, "victim", "vendor").await;
        let witness = Node::start(&allocator, "witness", "vendor").await;
        Trial { allocator, victim, of_victim: vendor(), witness, of_witness: vendor() }
    }

    /// Sets `fault` while the victim holds permits. Returns when.
    async fn strike(&self, fault: Fault) -> Moment {
        self.victim.recover(&self.of_victim).await;
        let (callers, end) = (self.victim.drive(&self.of_victim), CLOCK.now() + RECOVERY);
        // This test has one thread, so no task can spend these permits before the fault.
        while self.victim.limit.available() < 3 {
            assert!(CLOCK.now() < end, "the victim has no permits when the fault begins");
            sleep(CALL_EVERY).await;
        }
        self.victim.proxy.set(fault);
        let began = CLOCK.now();
        stop(callers).await;
        began
    }

    /// Lets all nodes of `who` spend what they can, until `end`.
    async fn spend(&self, who: &[(&Node, &Arc<Vendor>)], end: Moment) {
        let callers: Vec<_> = who.iter().map(|(node, vendor)| node.drive(vendor)).collect();
        until(end).await;
        for callers in callers {
            stop(callers).await;
        }
    }

    /// Lets both nodes spend what they can, until `end`.
    async fn compete(&self, end: Moment) {
        self.spend(&[(&self.victim, &self.of_victim), (&self.witness, &self.of_witness)], end).await;
    }

    /// Ends the fault. The victim recovers, and no admission of either node is missing in the books.
    async fn end(self) {
        self.victim.proxy.set(Fault::None);
        self.victim.recover(&self.of_victim).await;
        let vendor = self.of_witness;
        vendor.merge(&self.of_victim);
        let admitted = vendor.count();
        let books = wind_up(&self.allocator, vec![self.victim, self.witness], &vendor).await;
        assert_eq!(books, (admitted, 0), "the books: spent and burned");
        self.allocator.stop().await;
    }
}

/// Ends `callers`, which must not have panicked.
async fn stop(callers: JoinHandle<()>) {
    callers.abort();
    assert!(callers.await.is_err_and(|error| error.is_cancelled()));
}

/// A node that receives no answer may spend what it has until its lease ends, and nothing after that. Its last ask was
/// sent before the fault began, and the term counts from there.
async fn silence(fault: Fault) {
    let trial = Trial::start().await;
    let began = trial.strike(fault).await;
    until(began + TERM).await;
    trial.compete(began + TERM + FOR_A_WHILE).await;
    assert_eq!(trial.of_victim.count_after(began + TERM), 0, "calls were admitted after the lease ended");
    assert!(trial.of_witness.count() > 0, "the witness gets the rest");
    trial.end().await;
}

#[tokio::test]
async fn a_node_that_is_cut_off_spends_nothing_after_its_lease_and_comes_back() {
    silence(Fault::Cut).await;
}

#[tokio::test]
async fn a_node_that_is_not_heard_spends_nothing_after_its_lease_and_comes_back() {
    silence(Fault::Deaf).await;
}

#[tokio::test]
async fn a_node_that_is_heard_and_never_answered_holds_nothing_up() {
    silence(Fault::Mute).await;
}

#[tokio::test]
async fn a_node_whose_answers_are_lost_on_the_way_loses_no_permit() {
    silence(Fault::AnswerLost).await;
}

/// A term is counted from the ask, so an answer that takes longer than the term is worth nothing, whichever way was
/// slow. A node learns how far away it is, and its leases would then outlast the way. Here two nodes that want
/// everything and the limit's `term` keep leases short.
async fn too_late(fault: Fault) {
    let trial = Trial::start().await;
    trial.compete(CLOCK.now() + FOR_A_WHILE / 3).await;
    let began = trial.strike(fault).await;
    trial.compete(began + LATE * 5 / 2).await;
    assert_eq!(
        trial.of_victim.count_after(began + TERM),
        0,
        "a grant that arrived after its lease was spent"
    );
    let stats = trial.victim.client.stats();
    assert!(stats.exchanges > stats.failed_exchanges + 2, "too few exchanges were answered: {stats:?}");
    trial.end().await;
}

/// Shorter than the time that a client waits for an answer, and far longer than a term.
const LATE: Duration = Duration::from_millis(800);

#[tokio::test]
async fn a_lease_whose_ask_takes_longer_than_its_term_is_not_spent() {
    too_late(Fault::Delay { there: LATE, back: Duration::ZERO }).await;
}

#[tokio::test]
async fn a_lease_whose_answer_takes_longer_than_its_term_is_not_spent() {
    too_late(Fault::Delay { there: Duration::ZERO, back: LATE }).await;
}

/// Each request of both nodes arrives three times: again at once, while its lease is spent, and once more when newer
/// requests have been answered.
#[tokio::test]
async fn a_request_that_is_heard_three_times_counts_once() {
    let trial = Trial::start().await;
    let fault = Fault::Repeat { later: TERM * 2 };
    trial.witness.proxy.set(fault);
    let before = trial.victim.proxy.requests();
    let began = trial.strike(fault).await;
    trial.compete(began + FOR_A_WHILE).await;
    assert!(trial.victim.proxy.requests() - before > 3, "too few requests to repeat");
    assert!(trial.of_victim.count() > 3, "the victim still gets permits");
    trial.witness.proxy.set(Fault::None);
    trial.end().await;
}

#[tokio::test]
async fn a_true_answer_in_an_unusual_dress_is_believed() {
    let allocator = Allocator::start().await;
    let vendor = vendor();
    let mut nodes = vec![];
    for dress in Dress::ALL {
        let node = Node::start(&allocator, "plain", "vendor").await;
        node.proxy.set(Fault::Dressed(dress));
        // The first answer may have come before the fault. Ten terms later permits come by later answers.
        node.recover(&vendor).await;
        sleep(TERM * 10).await;
        node.recover(&vendor).await;
        assert_eq!(node.client.stats().failed_exchanges, 0, "{dress:?}");
        nodes.push(node);
    }
    let admitted = vendor.count();
    assert_eq!(wind_up(&allocator, nodes, &vendor).await, (admitted, 0));
    allocator.stop().await;
}

/// A lease of a second, and some three hundred bytes each way, sent one at a time.
#[tokio::test]
async fn a_trickle_within_the_term_brings_permits_and_a_slower_one_stops_no_other_node() {
    let allocator = Allocator::start().await;
    let vendor = Vendor::new(SLOW_LIMIT, SLOW_PER);
    let slow = Node::start(&allocator, "slow", "slow").await;
    slow.proxy.set(Fault::Trickle { pause: Duration::ZERO });
    slow.recover(&vendor).await;
    // An exchange now takes three seconds, and may take one.
    slow.proxy.set(Fault::Trickle { pause: Duration::from_millis(10) });
    let began = CLOCK.now();
    let other = Node::start(&allocator, "other", "slow").await;
    while slow.client.stats().failed_exchanges == 0 {
        other.recover(&vendor).await;
        vendor.call(&slow.limit);
        sleep(CALL_EVERY).await;
    }
    until(began + Duration::from_secs(1)).await;
    let before = vendor.count();
    while slow.client.stats().failed_exchanges < 2 {
        assert!(!vendor.call(&slow.limit), "a call was admitted after the lease ended");
        sleep(CALL_EVERY).await;
    }
    assert_eq!(vendor.count(), before);
    slow.proxy.set(Fault::None);
    slow.recover(&vendor).await;
    assert_eq!(vendor.breach(), None);
    slow.client.shutdown().await;
    other.client.shutdown().await;
    allocator.stop().await;
}
