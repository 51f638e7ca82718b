//! Passes libFuzzer's inputs to [`lessor_fuzz::store_url`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lessor_fuzz::store_url(data));
