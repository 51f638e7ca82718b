//! Passes libFuzzer's inputs to [`lessor_fuzz::stored_rows`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lessor_fuzz::stored_rows(data));
