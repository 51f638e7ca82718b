//! Passes libFuzzer's inputs to [`lessor_fuzz::wire`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lessor_fuzz::wire(data));
