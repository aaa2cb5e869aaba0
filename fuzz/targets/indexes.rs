#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (lockgate_fuzz::target("indexes").expect("it is listed").run)(bytes));
