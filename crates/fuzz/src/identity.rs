//! The identity file: what is read is what was written, or an error.

use lockgate_server::data_dir::Identity;
use lockgate_storage::disk::memory::MemoryDisk;

const GOOD: &str = "# Whose data this is. Made by the node itself; an edited file is refused.\nformat = 1\n\
    cluster = 000102030405060708090a0b0c0d0e0f\nnode = 1\ndisk = f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff\nshards = 2\nincarnation = 9\n";

pub(crate) fn run(bytes: &[u8]) {
    read(bytes);
    // Behind the checksum is where the values are parsed.
    let text = String::from_utf8_lossy(bytes);
    let text = text.split("crc32c = ").next().unwrap_or_default();
    read(sealed(text).as_bytes());
}

fn read(bytes: &[u8]) {
    let disk = MemoryDisk::new();
    disk.set_file("identity", bytes.to_vec());
    match Identity::read(&disk) {
        Ok(found) => assert!(found.is_some(), "a file is there"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn sealed(text: &str) -> String {
    format!("{text}crc32c = {:08x}\n", crc32c::crc32c(text.as_bytes()))
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    vec![sealed(GOOD).into_bytes(), GOOD.as_bytes().to_vec()]
}
