//! Passes libFuzzer's inputs to [`lessor_fuzz::rate_limit_headers`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lessor_fuzz::rate_limit_headers(data));
