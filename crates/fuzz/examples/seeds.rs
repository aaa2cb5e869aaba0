//! Writes every target's seeds to a directory of its own below the one that is named, for a fuzzer to begin with.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let Some(below) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: seeds DIRECTORY");
        std::process::exit(2);
    };
    for target in lockgate_fuzz::TARGETS {
        let directory = below.join(target.name);
        std::fs::create_dir_all(&directory)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(directory.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
