//! Passes libFuzzer's inputs to [`lessor_fuzz::rules`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lessor_fuzz::rules(data));
