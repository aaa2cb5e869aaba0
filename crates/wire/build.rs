//! Compiles `proto/lockgate.proto` without a `protoc` on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/lockgate.proto");
    let descriptors = protox::compile(["proto/lockgate.proto"], ["proto"])?;
    prost_build::Config::new().bytes(["."]).btree_map(["."]).compile_fds(descriptors)?;
    Ok(())
}
