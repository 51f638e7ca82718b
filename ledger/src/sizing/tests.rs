//! Tests of sizing: shares worked out by hand, and laws that hold for all claims.

use super::claims::peers::{Level, Levels, OfIdentity};
use super::*;
use crate::share::{Owner, Share};
use proptest::prelude::*;

mod walk;

const TERM: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(250);

/// The claim of a session that spends `need` a term and holds nothing.
fn claim(need: u64) -> Claim {
    Claim { mean: u128::from(need) * PERMIT, need, bare: need, share: Share::EVEN, holds: 0 }
}

/// A session that wants all that `claim` lacks, and got nothing for a term.
fn asker(claim: Claim) -> Asker {
    Asker { want: claim.need - claim.holds, claim, since: TERM, accrues_for: TERM, turn: POLL }
}

/// The claims of sessions that are called 0, 1, and so on.
fn all_of(claims: &[Claim]) -> Claims<usize> {
    let mut all = Claims::default();
    claims.iter().enumerate().for_each(|(id, claim)| all.insert(id, *claim));
    all
}

/// Returns what `asker` is granted beside `others`, and checks it against the reference.
fn granted(asker: Asker, others: &[Claim], supply: Supply) -> Sized {
    let given = grant(asker, all_of(others).peers(asker.claim.share.priority), supply);
    assert_eq!(given, walk::grant(asker, others, supply));
    given
}

/// A pool that does not refill.
fn supply(left: u64) -> Supply {
    Supply { left, stock: left, soon: 0, within_term: left, sustained: 0, term: TERM, poll: POLL }
}

/// A pool with `left`, to which 400 come back in a term.
fn trickle(left: u64) -> Supply {
    Supply { soon: 100, within_term: left + 400, sustained: parts(400), ..supply(left) }
}

#[test]
fn a_rich_pool_gives_what_is_wanted_up_to_half() {
    let others = [claim(300), claim(80)];
    let given = granted(asker(claim(120)), &others, supply(9_000));
    assert_eq!(given, Sized { permits: 120, state: State::Abundant });
    assert_eq!(granted(asker(claim(900)), &[], supply(1_000)).permits, 500);
}

#[test]
fn a_draining_pool_gives_halves_down_to_single_permits() {
    let mut left = 100;
    let mut grants = vec![];
    while left > 0 {
        let lent = granted(asker(claim(1_000)), &[], supply(left)).permits;
        grants.push(lent);
        left -= lent;
    }
    assert_eq!(grants, [50, 25, 12, 6, 3, 2, 1, 1]);
}

#[test]
fn a_draining_pool_gives_everybody_the_same_time() {
    // 600 a term are needed of 500: half of that lasts for five twelfths of a term.
    let (large, small) = (claim(450), claim(150));
    let given = granted(asker(large), &[small], supply(500));
    let lasts = TERM * 5 / 12;
    assert_eq!(given, Sized { permits: 187, state: State::Draining { lasts } });
    assert_eq!(granted(asker(small), &[large], supply(500)).permits, 62);
    // What it holds already counts.
    let holder = Claim { holds: 180, ..large };
    assert_eq!(granted(asker(holder), &[small], supply(500)).permits, 7);
    // A session that claims a thousand times what there is gets as much as one that claims all there is.
    let (absurd, greedy) = (claim(500_000), claim(500));
    assert_eq!(granted(asker(absurd), &[large], supply(500)), granted(asker(greedy), &[large], supply(500)));
}

#[test]
fn a_trickle_is_shared_by_time() {
    // Four sessions that want far more than their share of 440 in a term, 110 each: 27 in a poll.
    let large = claim(1_000);
    let poll = Asker { since: POLL, ..asker(large) };
    let given = granted(poll, &[large; 3], trickle(40));
    assert_eq!(given, Sized { permits: 27, state: State::Scarce });
    assert_eq!(granted(poll, &[large; 3], trickle(20)).permits, 20);
    assert_eq!(granted(Asker { since: POLL / 5, ..poll }, &[large; 3], trickle(40)).permits, 5);
}

#[test]
fn what_the_modest_are_owed_is_kept_for_them() {
    let (modest, large) = (claim(10), claim(1_000));
    let poor = trickle(15);
    assert_eq!(granted(asker(modest), &[large, large], poor).permits, 10);
    assert_eq!(granted(asker(large), &[modest, large], poor).permits, 5);
    let served = Claim { holds: 10, ..modest };
    assert_eq!(granted(asker(large), &[served, large], poor).permits, 15);
}

#[test]
fn who_wants_much_less_than_the_average_is_served_when_little_comes() {
    // Two come back in this term, 400 on average: 10 are far below 133, 120 are not.
    let little = Supply { within_term: 12, ..trickle(10) };
    let (modest, large) = (claim(10), claim(1_000));
    assert_eq!(granted(asker(modest), &[large, large], little).permits, 10);
    assert_eq!(granted(asker(claim(120)), &[large, large], little).permits, 4);
}

#[test]
fn when_not_all_gaps_can_be_filled_the_small_ones_are() {
    // All are covered by what comes, but what is there now does not fill gaps of 20, 150 and 150.
    let (small, large) = (claim(20), Claim { need: 300, ..claim(150) });
    let since = Duration::ZERO;
    let now = Supply { left: 30, stock: 30, soon: 60, ..trickle(30) };
    let lent = granted(Asker { since, ..asker(small) }, &[large, large], now).permits;
    assert_eq!(lent, 20, "less than a third of 90");
    let lent =
        granted(Asker { since, ..asker(large) }, &[small, large], Supply { left: 60, stock: 60, ..now })
            .permits;
    assert_eq!(lent, 40, "a third of 120");
}

#[test]
fn who_asks_all_the_time_gets_no_more() {
    let large = claim(1_000);
    let hasty = Asker { since: POLL / 1_000, ..asker(large) };
    assert_eq!(granted(hasty, &[large; 9], trickle(40)).permits, 0);
    assert_eq!(granted(Asker { since: POLL, ..hasty }, &[claim(1_000_000); 900], trickle(40)).permits, 1);
}

#[test]
fn identities_share_before_their_sessions_do() {
    let of = |owner, claim: Claim| Claim { share: Share { owner: Owner(owner), ..claim.share }, ..claim };
    let (one, other) = (of(1, claim(1_000)), of(2, claim(1_000)));
    let comes = Supply { soon: 400, ..trickle(400) };
    // Nine sessions of one identity, and one of another: each identity has half of what comes.
    let many = [one; 8];
    let others: Vec<Claim> = many.iter().copied().chain([other]).collect();
    assert_eq!(granted(asker(one), &others, comes).permits, 44, "a ninth of half of 800");
    assert_eq!(granted(asker(other), &[&many[..], &[one]].concat(), comes).permits, 400);
    // What an identity does not want is for the others.
    let modest = of(2, claim(80));
    let others: Vec<Claim> = many.iter().copied().chain([modest]).collect();
    assert_eq!(granted(asker(one), &others, comes).permits, 80, "a ninth of 720");
    // So it is while it drains, by less at a time.
    let others: Vec<Claim> = many.iter().copied().chain([other]).collect();
    assert_eq!(granted(asker(one), &others, supply(900)).permits, 25);
    assert_eq!(granted(asker(other), &[&many[..], &[one]].concat(), supply(900)).permits, 225);
    // An identity that asks first has its own share, and is not one session more of another.
    assert_eq!(all_of(&many).peers(0).part_of_identity(other.share, parts(800)), Some(MILLION / 2));
    assert_eq!(all_of(&many).peers(0).part_of_identity(one.share, parts(800)), None);
    assert_eq!(all_of(&[modest]).peers(0).part_of_identity(one.share, parts(800)), Some(900_000));
}

#[test]
fn weights_tilt_the_shares() {
    let (heavy, light) = (Claim { share: Share { weight: 3, ..Share::EVEN }, ..claim(1_000) }, claim(1_000));
    let level = all_of(&[light]).peers(0).level(heavy, parts(400));
    assert_eq!((level.share(heavy), level.share(light)), (300 * PERMIT, 100 * PERMIT));
}

/// The bug: what others lack was taken off what a term brings, though it is kept for later. A term that had permits at
/// once seemed to bring none, and a division by zero ended the process.
#[test]
fn what_is_kept_for_others_leaves_what_can_be_lent_now() {
    let evened_out = Supply { stock: 100, within_term: 10, ..supply(5) };
    let less = evened_out.less(50);
    assert_eq!((less.left, less.stock, less.within_term), (5, 50, 5));
    assert_eq!(granted(asker(claim(40)), &[], less).permits, 2);
    let little = evened_out.less(97);
    assert_eq!((little.left, little.stock, little.within_term), (3, 3, 3));
}

#[test]
fn a_newcomer_starts_small() {
    assert_eq!(newcomer_cap(0, 7, supply(9_000)), 281);
    assert_eq!(newcomer_cap(500, 7, supply(9_000)), 500);
    assert_eq!(newcomer_cap(0, 1_000, supply(30)), 1);
}

fn claims() -> impl Strategy<Value = Vec<Claim>> {
    let claim =
        |(need, weight, holds)| Claim { share: Share { weight, ..Share::EVEN }, holds, ..claim(need) };
    prop::collection::vec((0u64..10_000, 1u64..5, 0u64..5_000).prop_map(claim), 1..20)
}

proptest! {
    #[test]
    fn a_grant_is_wanted_and_there(
        want in 0u64..10_000, left in 0u64..10_000, soon in 0u64..10_000, more in 0u64..10_000, claims in claims(),
    ) {
        let asker = Asker { want, claim: claims[0], since: TERM, accrues_for: TERM, turn: POLL };
        let supply = Supply { left, stock: left, soon, within_term: left + more, sustained: parts(more), term: TERM, poll: POLL };
        let Sized { permits, state } = granted(asker, &claims[1..], supply);
        prop_assert!(permits <= want && permits <= left);
        if state != State::Scarce {
            prop_assert!(permits <= (left / 2).max(1));
            prop_assert_eq!(permits == 0, want == 0 || left == 0, "something, while anything is left");
        }
    }

    /// What modest sessions lack stays there for them, however often a greedy session asks.
    #[test]
    fn what_is_owed_is_never_lent_to_the_greedy(left in 0u64..1_000, modest in 1u64..50, asks in 1usize..50) {
        let (modest, greedy) = (claim(modest), claim(100_000));
        let mut left = left;
        for _ in 0..asks {
            left -= granted(asker(greedy), &[modest, greedy], Supply { soon: 1_000, ..trickle(left) }).permits;
        }
        let lent = granted(asker(modest), &[greedy, greedy], Supply { soon: 1_000, ..trickle(left) }).permits;
        prop_assert_eq!(lent, modest.need.min(left));
    }

    #[test]
    fn water_filling_is_max_min(supply in 0u64..30_000, claims in claims()) {
        let level = all_of(&claims[1..]).peers(0).level(claims[0], parts(supply));
        let fills: Vec<u128> = claims.iter().map(|claim| level.share(*claim)).collect();
        let (total, needs) = (fills.iter().sum::<u128>(), claims.iter().map(|claim| claim.mean).sum::<u128>());
        let all = (u128::from(supply) * PERMIT).min(needs);
        // Rounding down loses less than a part a claim.
        prop_assert!(total <= all && total + claims.len() as u128 > all);
        for (claim, fill) in claims.iter().zip(&fills) {
            for (other, theirs) in claims.iter().zip(&fills) {
                // A claim that is short stands at least as high, by weight, as any other.
                if *fill < claim.mean {
                    prop_assert!((fill + 1) * u128::from(other.share.weight) >= theirs * u128::from(claim.share.weight));
                }
            }
        }
    }

    /// Sessions come, change, go and ask in any order. Grants sized by sums equal those of the reference, which looks
    /// at every other session.
    #[test]
    fn what_is_sized_by_sums_is_what_a_walk_finds(
        steps in prop::collection::vec((0usize..40, any_claim(), any::<bool>()), 1..200), own in any_claim(),
        asks in prop::option::of(0usize..40),
        supplies in prop::collection::vec((0u64..3_000, 0u64..500, 0u64..2_000, 0u64..3_000, 0u64..1_200), 1..10),
    ) {
        let mut known = std::collections::BTreeMap::new();
        let mut all = Claims::default();
        for (id, claim, asks) in steps {
            match known.remove(&id) {
                Some(before) if !asks && claim.need > claim.holds => {
                    all.replace(id, before, claim);
                    known.insert(id, claim);
                    continue;
                }
                Some(before) if asks => all.set_aside(id, before),
                Some(before) => all.remove(id, before),
                None => {}
            }
            if claim.need > 0 {
                all.insert(id, claim);
                known.insert(id, claim);
            } else if asks {
                all.drop_aside(id);
            }
        }
        let mut own = own;
        if let Some((id, claim)) = asks.and_then(|id| Some((id, known.remove(&id)?))) {
            all.set_aside(id, claim);
            // No session changes its identity.
            own.share.owner = claim.share.owner;
        }
        let claims: Vec<Claim> = known.values().copied().collect();
        let priority = own.share.priority;
        let needs = claims.iter().map(|claim| u128::from(claim.need)).sum::<u128>();
        prop_assert_eq!((all.needs(), all.before(priority)), (needs, walk::before(&claims, priority)));
        for group in 0..2 {
            let members = claims.iter().filter(|claim| claim.share.group == Some(group)).count();
            prop_assert_eq!(all.members(group), members as u64);
        }
        let peers: Vec<Claim> = claims.into_iter().filter(|claim| claim.share.priority == priority).collect();
        prop_assert_eq!(all.peers(priority).count(), peers.len() as u64);
        for (left, soon, more, sustained, since) in supplies {
            // In every other supply a part is kept for later.
            let stock = left + more * (soon % 2);
            let within_term = left + soon + more;
            let sustained = parts(sustained) / 7;
            let supply = Supply { left, stock, soon, within_term, sustained, term: TERM, poll: POLL };
            let turn = if more % 2 == 0 { POLL } else { 2 * POLL };
            let asker = Asker { since: Duration::from_millis(since), turn, ..asker(Claim { holds: own.holds.min(own.need), ..own }) };
            prop_assert_eq!(grant(asker, all.peers(priority), supply), walk::grant(asker, &peers, supply));
            let (level, walked) = (all.peers(priority).level(own, parts(left)), walk::levels(&peers, own, parts(left)));
            let others = |levels: Levels| levels.identities.map(|own| (own.mean, own.weight));
            prop_assert_eq!(level.share(own), walked.share(own));
            prop_assert_eq!(level.meets_all(), walked.meets_all());
            if all.peers(priority).has_other_owners(own.share.owner) {
                prop_assert_eq!((others(level), level), (others(walked), walked));
            }
        }
    }
}

/// Any claim: small and large, of a few weights, priorities and groups, also of the same size as another one.
fn any_claim() -> impl Strategy<Value = Claim> {
    let sizes = prop_oneof![Just(0), 1u64..20, 1u64..2_000, Just(100)];
    let share = (1u64..4, 0u64..3, prop::option::of(0usize..2), prop_oneof![Just(0), 0u64..3]);
    let parts = (sizes, 0u64..1_000, 0u64..2_000, share, 0u64..PERMIT as u64);
    parts.prop_map(|(need, bare, holds, (weight, priority, group, owner), more)| Claim {
        mean: u128::from(need) * PERMIT + u128::from(more),
        bare,
        holds,
        share: Share { weight, priority, group, owner: Owner(owner) },
        ..claim(need)
    })
}

/// The bug: what a session held counted among what the others could have, so it might hold all of a long window beside
/// one that wanted a few permits in a term.
#[test]
fn a_session_that_holds_a_long_window_is_bounded_once_others_find_too_little() {
    let (hoarder, modest) = (Claim { holds: 4_287, ..claim(9_000) }, claim(4));
    let all = all_of(&[modest]);
    let others = all.peers(0);
    assert!(may_hold(hoarder, others, 3, 4_287).is_some_and(|most| most < 4_287));
    assert_eq!(may_hold(hoarder, others, 8, 4_287), None, "the other has what it wants");
    assert_eq!(may_hold(claim(2), others, 3, 4_287), None, "it wants no more than its share");
}
