//! Which worlds there are to run: each is drawn by its seed.

use super::*;

/// Runs what `seed` draws.
///
/// # Errors
/// What was wrong, in words.
pub fn run(seed: u64) -> Result<Figures, String> {
    World::draw(seed, 5..600, 100..6_000).run_on(TROUBLE)
}

/// The same without a centre: the root is in a store that regions share.
///
/// # Errors
/// As [`run`].
pub fn run_stored(seed: u64) -> Result<Figures, String> {
    World::draw(seed, 5..600, 100..6_000).stored().run_on(TROUBLE)
}

/// The same where the limit is below another one.
///
/// # Errors
/// As [`run`].
pub fn run_family(seed: u64) -> Result<Figures, String> {
    let world = World::draw(seed, 5..600, 100..6_000).stored().below_another();
    match seed % 3 {
        0 => world.run_on(TROUBLE),
        1 => world.of_two_minds().run_on(TROUBLE),
        _ => world.of_two_minds().in_full_use(FATES_OF_FAMILY, 2 * SECOND).run_on(TROUBLE),
    }
}

/// The same by a cap on what is in flight, of calls that take up to some seconds.
///
/// # Errors
/// As [`run`].
pub fn run_capped(seed: u64) -> Result<Figures, String> {
    capped(seed).run_on(TROUBLE)
}

/// The same without a centre.
///
/// # Errors
/// As [`run`].
pub fn run_capped_store(seed: u64) -> Result<Figures, String> {
    capped(seed).stored().run_on(TROUBLE)
}

/// The same where one of two limits caps what is in flight, and the other one how much is let through.
///
/// # Errors
/// As [`run`].
pub fn run_capped_family(seed: u64) -> Result<Figures, String> {
    let mut world = World::draw(seed, 50..300, 1_000..4_000);
    let most = (0.5 * per_second(&world.rule)) as u64;
    let cap = cap(world.rng.u64(1..=most.max(2)), &mut world.rng);
    let world = match seed % 2 {
        0 => world.stored().below(cap),
        _ => {
            let above = world.rule;
            world.lends_by(cap);
            world.stored().below(above)
        }
    };
    world.run_on(TROUBLE)
}

fn capped(seed: u64) -> World {
    let mut world = World::draw(seed, 5..100, 1_000..3_000);
    let limit = world.rng.u64(5..100);
    let cap = cap(limit, &mut world.rng);
    world.lends_by(cap);
    world.rate = world.rng.f64() * 2.0 * per_second(&cap) / world.nodes.len() as f64;
    world
}

fn cap(limit: u64, rng: &mut fastrand::Rng) -> Rule {
    let longest = Duration::from_millis(rng.u64(1_000..3_000));
    Rule::Concurrency(Concurrency::try_new(limit, longest).expect("valid"))
}

/// The same by a bucket that refills at intervals.
///
/// # Errors
/// As [`run`].
pub fn run_intervals(seed: u64) -> Result<Figures, String> {
    at_intervals(seed, 200..3_000).run_on(TROUBLE)
}

/// The same by a short one in full use, where a few milliseconds make a difference, and nothing comes over the store.
///
/// # Errors
/// As [`run`].
pub fn run_intervals_close(seed: u64) -> Result<Figures, String> {
    let world = at_intervals(seed, 150..500).in_full_use(&[], u64::MAX / 4);
    world.on_crooked_ways().run_on(TROUBLE)
}

fn at_intervals(seed: u64, millis: Range<u64>) -> World {
    let mut world = World::draw(seed, 5..600, millis);
    let (permits, per) = permits_per(&world.rule);
    let capacity = permits * world.rng.u64(2..5) / 2;
    let rule = TokenBucket::try_new(capacity, permits, per, capacity).expect("valid");
    world.lends_by(Rule::TokenBucket(rule.with_refill_style(RefillStyle::Interval).expect("valid")));
    world.stored()
}

/// The same by a steady flow.
///
/// # Errors
/// As [`run`].
pub fn run_flow(seed: u64) -> Result<Figures, String> {
    flow(seed, 1..40).run_on(TROUBLE)
}

fn flow(seed: u64, bursts: Range<u64>) -> World {
    let mut world = World::draw(seed, 10..200, 1_000..2_000);
    let ((permits, per), burst) = (permits_per(&world.rule), world.rng.u64(bursts));
    world.lends_by(Rule::LeakyBucket(LeakyBucket::try_new(burst, permits, per).expect("valid")));
    world.stored()
}

/// What may become of a store of which all know who is above whom.
const FATES_OF_FAMILY: &[Fate] = &[Fate::Copied, Fate::Set, Fate::Started];

/// The same in full use of a rule of some seconds, while one of `fates` comes over the store every two seconds.
///
/// # Errors
/// As [`run`].
pub fn run_fated(seed: u64, fates: &'static [Fate]) -> Result<Figures, String> {
    World::draw(seed, 50..300, 1_000..4_000).stored().in_full_use(fates, 2 * SECOND).run_on(TROUBLE)
}

/// The same in full use, while processes die, and the store is emptied as one of them asks for the first time.
///
/// # Errors
/// As [`run`].
pub fn run_emptied(seed: u64) -> Result<Figures, String> {
    let world = World::draw(seed, 50..300, 1_000..4_000).stored();
    world.in_full_use(&[Fate::EmptiedUnderway], 2 * SECOND).of_mortals().run_on(TROUBLE)
}

/// The same by long rules, without any trouble but a `fault` of the clock of one region, which has no nodes.
///
/// # Errors
/// As [`run`].
pub fn run_lagging(seed: u64, fault: Fault) -> Result<Figures, String> {
    let mut world = World::draw(seed, 5..600, 2_000..6_000);
    let (hour, day) = (Duration::from_secs(3_600), Duration::from_secs(86_400));
    world.lends_by(match seed % 3 {
        0 => Rule::FixedWindow(FixedWindow::of(1_000_000, Windows::FirstUse { per: hour }).expect("valid")),
        1 => {
            let bucket = TokenBucket::try_new(10_000_000, 10_000_000, day, 10_000_000).expect("valid");
            Rule::TokenBucket(bucket.with_refill_style(RefillStyle::Interval).expect("valid"))
        }
        _ => {
            Rule::SlidingWindow(SlidingWindow::try_new(600, 2 * hour / 3_600, Duration::ZERO).expect("valid"))
        }
    });
    world.lagging(fault).run_lagging()
}

/// The same by a small bucket, which has to be on time. Either all nodes want a permit all the time, and nothing comes over the
/// store. Or hardly any node does, and the store is emptied.
///
/// # Errors
/// As [`run`].
pub fn run_small(seed: u64) -> Result<Figures, String> {
    let mut world = World::draw(seed, 1..4, 150..500);
    let (permits, per) = (world.rng.u64(1..4), Duration::from_millis(world.rng.u64(150..500)));
    world.lends_by(Rule::TokenBucket(TokenBucket::try_new(permits, 1, per, permits).expect("valid")));
    let world = world.stored();
    match seed % 2 {
        0 => world.in_full_use(&[], u64::MAX / 4).of_few_permits(10.0),
        _ => world.in_full_use(&[Fate::Emptied], 3 * SECOND).of_few_permits(0.1),
    }
    .run_on(TROUBLE)
}

/// The same by a short rule, where a few milliseconds make a difference, and nothing comes over the store.
///
/// # Errors
/// As [`run`].
pub fn run_close(seed: u64) -> Result<Figures, String> {
    let world = World::draw(seed, 50..300, 200..600).stored().in_full_use(&[], u64::MAX / 4);
    world.on_crooked_ways().run_on(TROUBLE)
}

/// The same by a rule of some seconds, with `demand` times what it allows, and no trouble at all: the part of it that was used.
///
/// # Errors
/// As [`run`].
pub fn used(seed: u64, demand: f64) -> Result<f64, String> {
    let mut world = World::draw(seed, 100..600, 2_000..6_000);
    world.far = 10 * MILLI;
    world.used(demand)
}

/// The same without a centre.
///
/// # Errors
/// As [`run`].
pub fn used_stored(seed: u64, demand: f64) -> Result<f64, String> {
    World::draw(seed, 100..600, 2_000..6_000).stored().used(demand)
}

/// The same where the limit is below another one: the part of what one limiter admits that is asked about each call. Two windows that
/// begin at different times leave less than the smaller of both.
///
/// # Errors
/// As [`run`].
pub fn used_family(seed: u64, demand: f64) -> Result<f64, String> {
    World::draw(seed, 100..600, 2_000..6_000).stored().below_another().used_beside_exact(demand)
}

/// By a cap on what is in flight: the part of the limit that is in use, on average.
///
/// # Errors
/// As [`run`].
pub fn used_capped(seed: u64, demand: f64) -> Result<f64, String> {
    let mut world = capped(seed);
    world.far = 10 * MILLI;
    world.used(demand)
}

/// The same without a centre.
///
/// # Errors
/// As [`run`].
pub fn used_capped_store(seed: u64, demand: f64) -> Result<f64, String> {
    capped(seed).stored().used(demand)
}

/// By a bucket that refills at intervals: the part of what one limiter admits that is asked about each call.
///
/// # Errors
/// As [`run`].
pub fn used_intervals(seed: u64, demand: f64) -> Result<f64, String> {
    at_intervals(seed, 1_000..4_000).used_beside_exact(demand)
}

/// By a steady flow: the part of what one limiter admits that is asked about each call.
///
/// # Errors
/// As [`run`].
pub fn used_flow(seed: u64, demand: f64) -> Result<f64, String> {
    flow(seed, 5..40).used_beside_exact(demand)
}
