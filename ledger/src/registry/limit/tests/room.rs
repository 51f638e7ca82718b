//! Tests of how many keys, names and sessions a limit admits, and how soon an unused key makes room.

use super::*;
use crate::share::Owner;

const MONTH: &str = "rules = [{ kind = \"fixed_window\", limit = 1000, per = \"30d\" }]\nkeyed = true";

fn limit_of(text: &str) -> Limit {
    let config = Config::parse(&format!("[[limit]]\nname = \"a\"\n{text}")).expect("valid");
    Limit::new(config.limits[0].clone(), config.clocks, Past::None, millis(0))
}

/// Asks for a permit of `key` as the session `id` of `owner`. Returns whether it is admitted.
fn ask_as(limit: &mut Limit, owner: u64, at: u64, id: u64, key: &str) -> Result<(), AskRejection> {
    let share = Share { owner: Owner(owner), ..Share::EVEN };
    let holder = Holder { id: SessionId(id), share, rtt: Duration::ZERO };
    let ask = Ask { want: 1, waiting: 1, ..Ask::default() };
    limit.renew(millis(at), &self::key(key), holder, 1, ask).map(drop)
}

/// Asks for a permit of the key `key` of `name`, where the limit is a pattern.
fn ask_of_name(
    limit: &mut Limit,
    owner: u64,
    at: u64,
    id: u64,
    name: &str,
    key: &str,
) -> Result<(), (Reason, String)> {
    let share = Share { owner: Owner(owner), ..Share::EVEN };
    let holder = Holder { id: SessionId(id), share, rtt: Duration::ZERO };
    let pool = limit.pool_id(name, Some(key)).expect("it fits");
    let ask = Ask { want: 1, waiting: 1, ..Ask::default() };
    limit.renew(millis(at), &pool, holder, 1, ask).map(drop).map_err(|error| (error.reason, error.detail))
}

/// In a window of a month a charge is remembered for a month. A key whose permits all came back has no charge.
#[test]
fn a_key_of_which_nothing_was_used_is_forgotten_within_seconds() {
    let mut limit = limit_of(MONTH);
    assert_eq!(ask(&mut limit, 0, "used", 1, 0, 5), Ok(5));
    assert_eq!(ask(&mut limit, 0, "unused", 1, 0, 5), Ok(5));
    assert_eq!(ask(&mut limit, 100, "used", 2, 1, 0), Ok(0), "one was spent");
    assert_eq!(ask(&mut limit, 100, "unused", 2, 0, 0), Ok(0), "all came back");
    limit.sweep(millis(9_000), 10);
    assert_eq!(limit.figures(millis(9_000)).pools, 2);
    limit.sweep(millis(15_000), 10);
    assert!(limit.has(&key("used")) && !limit.has(&key("unused")));
    assert_eq!(ask(&mut limit, 15_000, "unused", 3, 0, 1), Ok(1), "its session goes on");
    assert_eq!(ask(&mut limit, 15_100, "used", 3, 1, 1), Ok(1));
    audit(&mut limit, millis(15_100));
}

#[test]
fn one_identity_leaves_a_tenth_of_the_keys_to_others() {
    let mut limit = limit_of(&format!("{MONTH}\nkeys_max = 20"));
    for n in 0..18 {
        assert_eq!(ask_as(&mut limit, 7, 0, n, &format!("k{n}")), Ok(()));
    }
    let refused = ask_as(&mut limit, 7, 0, 18, "k18").expect_err("it has nine tenths");
    assert_eq!((refused.reason, refused.field.as_deref()), (Reason::KeysFull, Some("key")));
    assert_eq!(
        refused.detail,
        "\"a\" has 18 keys in use that this identity began, as many as one may; those go on"
    );
    assert_eq!(ask_as(&mut limit, 7, 0, 100, "k3"), Ok(()), "an old key is for all");
    assert_eq!(ask_as(&mut limit, 9, 0, 200, "of another"), Ok(()));
    assert_eq!(ask_as(&mut limit, 0, 0, 201, "of none"), Ok(()));
    let refused = ask_as(&mut limit, 9, 0, 202, "k20").expect_err("there are twenty");
    assert_eq!(refused.detail, "\"a\" has 20 keys in use, as many as it may; those go on");
    audit(&mut limit, millis(0));
}

#[test]
fn keys_that_are_forgotten_make_room_for_their_identity() {
    let mut limit = limit("keyed = true\nkeys_max = 10");
    for n in 0..9 {
        assert_eq!(ask_as(&mut limit, 7, 0, n, &format!("k{n}")), Ok(()));
    }
    assert!(ask_as(&mut limit, 7, 0, 9, "more").is_err());
    limit.sweep(millis(60_000), 100);
    limit.sweep(millis(60_000), 100);
    assert_eq!(limit.pools.len(), 0);
    for n in 0..9 {
        assert_eq!(ask_as(&mut limit, 8, 60_000, 100 + n, &format!("k{n}")), Ok(()), "of another");
    }
    assert!(ask_as(&mut limit, 8, 60_000, 200, "more").is_err());
    assert_eq!(ask_as(&mut limit, 7, 60_000, 201, "more"), Ok(()));
}

/// Otherwise a flood that fills nine tenths of the keys would fill the last tenth after a restart.
#[test]
fn whose_keys_they_are_outlives_a_restart() {
    let text = format!("{MONTH}\nkeys_max = 10");
    let mut first = limit_of(&text);
    first.begin_writing();
    for n in 0..9 {
        assert_eq!(ask_as(&mut first, 7, 0, n, &format!("k{n}")), Ok(()));
    }
    let mut second = limit_of(&text);
    let (version, _) = first.row(millis(0), 1);
    for id in unwritten(&mut first) {
        let (row, _) = first.pool_row(millis(0), &id, version).flatten().expect("it was used");
        assert_eq!(row.owner, Some(7));
        second.restore(id, &row, version, Gap::Counted, millis(10));
    }
    assert_eq!(second.pools.len(), 9);
    let refused = ask_as(&mut second, 7, 20_000, 9, "more").expect_err("it has nine tenths");
    assert_eq!(refused.reason, Reason::KeysFull);
    assert_eq!(ask_as(&mut second, 8, 20_000, 10, "more"), Ok(()));
}

/// One key of each name takes all names long before it takes all keys.
#[test]
fn one_identity_leaves_a_tenth_of_the_names_of_a_pattern_with_keys_to_others() {
    let text =
        "[[limit]]\nname = \"api/*\"\nrules = [{ kind = \"fixed_window\", limit = 1000, per = \"30d\" }]
        keyed = true\nnames_max = 10";
    let config = Config::parse(text).expect("valid");
    let limit_of = || Limit::new(config.limits[0].clone(), config.clocks, Past::None, millis(0));
    let as_many_as_one_may = (
        Reason::NamesFull,
        "\"api/*\" has 9 names in use that this identity began, as many as one may; those go on".to_owned(),
    );
    let mut limit = limit_of();
    limit.begin_writing();
    for n in 0..9 {
        assert_eq!(ask_of_name(&mut limit, 7, 0, n, &format!("api/{n}"), "k"), Ok(()));
    }
    assert_eq!(ask_of_name(&mut limit, 7, 0, 9, "api/9", "k"), Err(as_many_as_one_may.clone()));
    assert_eq!(ask_of_name(&mut limit, 7, 0, 10, "api/3", "another"), Ok(()), "a key of an old name");
    let mut second = limit_of();
    let (version, _) = limit.row(millis(0), 1);
    for id in unwritten(&mut limit) {
        let (row, _) = limit.pool_row(millis(0), &id, version).flatten().expect("it was used");
        second.restore(id, &row, version, Gap::Counted, millis(10));
    }
    for (life, at) in [(&mut limit, 0), (&mut second, 20_000)] {
        assert_eq!(ask_of_name(life, 7, at, 11, "api/9", "k"), Err(as_many_as_one_may.clone()));
        assert_eq!(ask_of_name(life, 8, at, 12, "api/9", "k"), Ok(()), "of another");
        let full = "\"api/*\" has 10 names in use, as many as it may; those go on".to_owned();
        assert_eq!(ask_of_name(life, 8, at, 13, "api/10", "k"), Err((Reason::NamesFull, full)));
        assert_eq!(life.figures(millis(at)).names, 10);
    }
}

#[test]
fn names_that_are_forgotten_make_room_for_their_identity() {
    let text = "[[limit]]\nname = \"api/*\"\nkeyed = true\nnames_max = 10
        rules = [{ kind = \"sliding_window\", limit = 10, per = \"1s\" }]";
    let config = Config::parse(text).expect("valid");
    let mut limit = Limit::new(config.limits[0].clone(), config.clocks, Past::None, millis(0));
    for at in [0, 60_000, 120_000] {
        for n in 0..9 {
            assert_eq!(ask_of_name(&mut limit, 7, at, n, &format!("api/{at}-{n}"), "k"), Ok(()));
        }
        assert!(ask_of_name(&mut limit, 7, at, 9, "api/more", "k").is_err());
        limit.sweep(millis(at + 59_000), 100);
        limit.sweep(millis(at + 59_000), 100);
        assert_eq!(limit.figures(millis(at + 59_000)).names, 0);
    }
}

#[test]
fn while_memory_is_short_no_key_is_new_and_old_ones_go_on() {
    let mut limit = limit("keyed = true\nkeys_max = 10");
    for n in 0..4 {
        assert_eq!(ask_as(&mut limit, 0, 0, n, &format!("k{n}")), Ok(()));
    }
    let mut watch = MemoryWatch::new(1_000);
    limit.hold_pools(watch.look(1_000));
    assert_eq!(ask_as(&mut limit, 0, 10, 4, "k4"), Ok(()), "it is not more than it may be");
    limit.hold_pools(watch.look(1_001));
    let refused = ask_as(&mut limit, 0, 20, 5, "k5").expect_err("memory is short");
    assert_eq!((refused.reason, refused.field.as_deref()), (Reason::KeysFull, Some("key")));
    assert_eq!(
        refused.detail,
        "\"a\" has 5 keys in use, and memory is short (server.memory_max): those go on"
    );
    assert_eq!(ask_as(&mut limit, 0, 30, 6, "k0"), Ok(()));
    audit(&mut limit, millis(30));
    // The memory allocator keeps what was freed, and as many keys as before fit into that.
    limit.sweep(millis(60_000), 100);
    limit.sweep(millis(60_000), 100);
    limit.hold_pools(watch.look(1_001));
    for n in 10..15 {
        assert_eq!(ask_as(&mut limit, 0, 60_000, n, &format!("k{n}")), Ok(()));
    }
    assert!(ask_as(&mut limit, 0, 60_000, 15, "k15").is_err());
    limit.hold_pools(watch.look(900));
    assert_eq!(ask_as(&mut limit, 0, 60_010, 15, "k15"), Ok(()));
}

/// The bug: each key has room for thousands of sessions, so all keys together had room for more than any machine's
/// memory.
#[test]
fn while_memory_is_short_keys_have_few_new_sessions_and_old_ones_go_on() {
    let mut limit = limit_of(MONTH);
    let mut watch = MemoryWatch::new(1_000);
    for n in 0..100 {
        assert_eq!(ask_as(&mut limit, 7, 0, n, "k"), Ok(()));
        assert_eq!(ask_as(&mut limit, 7, 0, 1_000 + n, "l"), Ok(()));
    }
    limit.hold_pools(watch.look(1_001));
    let refused = ask_as(&mut limit, 7, 100, 2_000, "k").expect_err("memory is short");
    assert_eq!((refused.reason, refused.field.as_deref()), (Reason::LesseesFull, None));
    assert_eq!(
        refused.detail,
        "\"a\" remembers 200 sessions of keys, and memory is short (server.memory_max): those go on"
    );
    assert_eq!(ask_as(&mut limit, 7, 100, 5, "k"), Ok(()), "one that is known");
    // Another identity is admitted to keys that exist. So are peers without an identity, while a key has few sessions.
    let admitted = |limit: &mut Limit, owner, at, from: u64| {
        (from..from + 300).filter(|n| ask_as(limit, owner, at, *n, "k").is_ok()).count()
    };
    assert_eq!(admitted(&mut limit, 8, 200, 3_000), 4);
    assert_eq!(admitted(&mut limit, 0, 200, 4_000), 0);
    audit(&mut limit, millis(200));
    // Sessions whose leases have ended and that ask no more make room, though the window is a month.
    assert_eq!(ask_as(&mut limit, 7, 60_000, 2_000, "k"), Ok(()));
    limit.sweep(millis(60_000), 10);
    assert_eq!(limit.figures(millis(60_000)).sums.sessions, 1);
    assert_eq!(admitted(&mut limit, 7, 60_000, 5_000), 199, "as many as before fit into what was freed");
    audit(&mut limit, millis(60_000));
    limit.hold_pools(watch.look(900));
    assert_eq!(admitted(&mut limit, 7, 60_000, 6_000), 300);
}

/// Existing keys may take more memory the more they are used. The bound on their number falls then.
#[test]
fn memory_that_goes_on_to_grow_holds_at_fewer_keys() {
    let mut watch = MemoryWatch::new(1_000);
    let looks = [1_000, 1_100, 1_100, 1_050, 1_200, 1_150, 1_000, 1_001].map(|bytes| watch.look(bytes));
    let (enough, short, shorter) = (Memory::Enough, Memory::Short, Memory::Shorter);
    assert_eq!(looks, [enough, shorter, short, short, shorter, short, enough, shorter]);
}

/// The marks beside a pool take no room.
#[test]
fn a_pool_has_two_words_in_its_limit() {
    assert_eq!(size_of::<PoolEntry>(), 16);
}

/// Together with the books of its rule and its name, this is the kilobyte that `benches -- keys` shows for a key.
#[test]
fn a_key_in_use_takes_no_more_room_than_is_said_of_it() {
    assert_eq!((size_of::<CountedPool>(), Pool::SESSION_BYTES), (464, 272));
}
