//! Values that the command line refuses.

use super::*;

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn a_bad_value_is_exit_code_2() {
    let check = |args: &str| {
        let parsed = Cli::try_parse_from(args.split(' '));
        assert_eq!(parsed.map(|_| ()).map_err(|error| error.exit_code()), Err(2), "{args}");
    };
    check("lessor demo --nodes 0");
    check("lessor demo --seconds 0");
    check("lessor demo --seed -1");
    check("lessor demo --speed 60");
    check("lessor demo --trace x --speed 0");
    check("lessor demo --trace x --speed inf");
    check("lessor demo --trace x --speed NaN");
    check("lessor demo --trace x --seconds 5");
    check("lessor demo --trace x --vendor-halves-at 5");
    check("lessor demo --vendor-halves-at 0");
    check("lessor demo --kill-every 0");
    check("lessor demo --rotate-every 100ms");
    check("lessor demo --rotate-every 600");
    check("lessor demo --rotate-every 1s --kill-every 5");
    check("lessor demo --rotate-every 1s --watch");
    check("lessor demo --trace x --rotate-every 1s");
    check("lessor demo --allocators 0");
    check("lessor demo --allocators 9");
    check("lessor demo --trace x --allocators 2");
    check("lessor demo --trace x --kill-every 5");
    check("lessor demo --store-url redis://127.0.0.1");
    check("lessor demo --trace x --store memory");
    check("lessor demo --kill-every 5 --store paper");
    check("lessor demo --scenario what");
    check("lessor demo --scenario export-per-user --trace x");
    check("lessor demo --scenario export-per-user --kill-every 5");
    check("lessor demo --scenario export-per-user --seconds 5");
    check("lessor demo --scenario export-per-user --vendor-halves-at 5");
    check("lessor demo --users 2");
    check("lessor demo --vendor-restores-at 5");
    check("lessor demo --vendor-halves-at 5 --vendor-restores-at 0");
    check("lessor demo nothing");
    check("lessor demo --json vendor");
    check("lessor demo vendor --seed 1");
    check("lessor demo vendor --listen 7401");
    check("lessor demo node --number 0");
    check("lessor demo node --of 65");
    check("lessor demo node --listen nowhere");
    check("lessor serve --config x --listen nowhere");
    check("lessor serve --config x --log xml");
    check("lessor serve --config x --log-level a=b=c");
    check("lessor replay");
    check("lessor replay --config x --patience 5");
    check("lessor replay --config x --json");
    check("lessor replay --config x --nodes 0");
    // The bugs: they were ignored, and a drawn setup was taken for the limit that the arguments name.
    check("lessor replay --config x --rtt 5ms");
    check("lessor replay --config x --seed 2");
    for given in ["--nodes 3", "--seconds 3", "--limit x", "--name x", "--demand 1", "--plot x", "--compare"]
    {
        for drawn in ["--soak 1s", "--swarm 3", "--replay x"] {
            check(&format!("lessor simulate {drawn} {given}"));
        }
    }
    check("lessor simulate --swarm 3 --json");
    check("lessor simulate --replay x --seed 2");
    check("lessor simulate --soak 1s --replay x");
    let unnamed = Cli::try_parse_from(["lessor", "limits", "get", ""]);
    assert_eq!(unnamed.map(|_| ()).map_err(|error| error.exit_code()), Err(2));
    check("lessor store migrate");
    check("lessor tls");
    check("lessor tls dev-ca x --valid 0s");
    check("lessor tls dev-ca x --valid 4000d");
    check("lessor token");
    check("lessor token new a --valid 0s");
    check("lessor top --every 1ms");
    check("lessor top --sort what");
    check("lessor nothing");
}

/// The bug: the URL was ignored.
#[test]
fn the_server_of_a_store_needs_a_store_in_a_server() {
    let check = |store: &str| {
        let line = ["lessor", "demo", "--store", store, "--store-url", "redis://127.0.0.1"];
        let parsed = Cli::try_parse_from(line).expect("each option is right");
        let Command::Demo(args) = parsed.command else { panic!("it is a demo") };
        args.check().map_err(|failure| failure.to_string())
    };
    assert_eq!(check("redis"), Ok(()));
    for store in ["embedded", "memory"] {
        let said = check(store).expect_err(store);
        assert!(said.contains(&format!("than --store {store}: leave")), "{said}");
    }
}
