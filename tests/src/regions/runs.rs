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

/// The same by a small bucket, which has to be on time: either everybody wants a permit all the time, and nothing comes over the
/// store, or hardly anybody does, and it is emptied.
///
/// # Errors
/// As [`run`].
pub fn run_small(seed: u64) -> Result<Figures, String> {
    let mut world = World::draw(seed, 1..4, 150..500);
    let (permits, per) = (world.dice.u64(1..4), Duration::from_millis(world.dice.u64(150..500)));
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
