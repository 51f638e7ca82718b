//! Caps on what is in flight, where calls last longer than any should.

use lessor_sim::overlong::run;

/// The bug: a call that was in use when its lease ended counted for as long as a call may take, and no longer, though its node
/// said in each ask that it was in use: two regions had five in flight of four.
#[test]
fn a_call_counts_for_as_long_as_its_node_says_so() {
    let mut sums = [0; 3];
    for seed in 0..100 {
        let counts = run(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let [began, overlong, ended] = sums;
    println!(
        "{began} calls, {overlong} of them longer than any should be, {ended} leases that ended under calls"
    );
    assert!(overlong > 1_000 && ended > 1_000, "there was trouble: {sums:?}");
}
