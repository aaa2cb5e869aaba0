use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::config::{Machine, Sources};
use crate::data_dir::{DataDirError, Identity};
use crate::disk::RealDisk;

fn config(data: &Path) -> Config {
    let flags = vec![
        ("data_dir", data.display().to_string()),
        ("listen", "127.0.0.1:0".to_owned()),
        ("admin.listen", "127.0.0.1:0".to_owned()),
        ("shards.count", "2".to_owned()),
        ("journal.file_bytes", "8MiB".to_owned()),
    ];
    let sources = Sources { file: None, environment: BTreeMap::new(), flags, machine: Machine::default() };
    Config::load(&sources).unwrap()
}

fn http_code(address: SocketAddr, path: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_node_starts_is_ready_stops_and_starts_again() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    for start in 1..=2 {
        let server = Server::start(config(&data)).unwrap();
        assert_eq!(http_code(server.admin_address(), "/v1/system/ready"), 200);
        assert_eq!(http_code(server.admin_address(), "/metrics"), 200);
        let (client, admin) = (server.client_address(), server.admin_address());
        TcpStream::connect(client).unwrap();
        server.stop().unwrap();
        assert!(TcpStream::connect(client).is_err() && TcpStream::connect(admin).is_err());
        assert_eq!(Identity::read(&RealDisk::new(&data)).unwrap().unwrap().incarnation, start);
    }
}

#[test]
fn a_second_node_on_the_same_directory_is_refused_and_the_first_lives_on() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let first = Server::start(config(&data)).unwrap();
    let Err(error) = Server::start(config(&data)) else { panic!("two nodes on one directory") };
    assert!(matches!(error, ServerError::DataDir(DataDirError::Locked { .. })), "{error}");
    assert_eq!(http_code(first.admin_address(), "/v1/system/ready"), 200);
    first.stop().unwrap();
}

#[test]
fn an_address_in_use_is_named_and_nothing_stays_behind() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut wanted = config(&data);
    wanted.listen = address;
    let Err(error) = Server::start(wanted.clone()) else { panic!("two listeners on one address") };
    assert_eq!(
        error.to_string(),
        format!("the address {address} for clients is in use; stop what uses it, or choose another one")
    );
    wanted.listen = config(&data).listen;
    wanted.admin_listen = address;
    let Err(error) = Server::start(wanted) else { panic!("two listeners on one address") };
    assert!(error.to_string().contains("for admin is in use"), "{error}");
    assert!(!data.exists(), "a start that could not be leaves no data directory");
    drop(Server::start(config(&data)).unwrap());
}

#[test]
fn a_dropped_node_has_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    drop(Server::start(config(&data)).unwrap());
    Server::start(config(&data)).unwrap().stop().unwrap();
}
