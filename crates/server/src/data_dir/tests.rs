use super::*;

fn open(path: &Path) -> Result<DataDir, DataDirError> {
    DataDir::open(path, NodeId(1), 2)
}

fn fresh() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("data");
    (root, path)
}

#[test]
fn a_directory_is_made_once_and_keeps_its_identity() {
    let (_root, path) = fresh();
    let first = open(&path).unwrap();
    assert!(first.is_new);
    assert_eq!(first.identity.incarnation, 1);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
    let identity = first.identity.clone();
    drop(first);
    let second = open(&path).unwrap();
    assert!(!second.is_new);
    assert_eq!(second.identity, Identity { incarnation: 2, ..identity });
}

#[test]
fn two_new_directories_have_different_identities() {
    let ((_r1, one), (_r2, two)) = (fresh(), fresh());
    let (one, two) = (open(&one).unwrap().identity, open(&two).unwrap().identity);
    assert!(one.cluster != two.cluster && one.disk != two.disk && one.cluster != one.disk);
}

#[test]
fn a_second_server_is_told_who_holds_the_directory() {
    let (_root, path) = fresh();
    let first = open(&path).unwrap();
    let error = open(&path).unwrap_err();
    assert!(matches!(error, DataDirError::Locked { pid: Some(pid), .. } if pid == std::process::id()), "{error}");
    assert!(error.to_string().contains(&format!("in use by process {}", std::process::id())));
    drop(first);
    assert_eq!(open(&path).unwrap().identity.incarnation, 2, "the refused start left no trace");
}

#[test]
fn another_node_is_refused_with_both_values_and_advice() {
    let (_root, path) = fresh();
    drop(open(&path).unwrap());
    let error = DataDir::open(&path, NodeId(7), 2).unwrap_err().to_string();
    assert!(error.contains("belongs to node 1, but node.id is 7; set node.id = 1"), "{error}");
}

#[test]
fn the_shard_count_stays_what_it_was_until_other_journals_count() {
    let (_root, path) = fresh();
    drop(open(&path).unwrap());
    let mut found = DataDir::open(&path, NodeId(1), 3).unwrap();
    assert_eq!((found.identity.shards, found.identity.journals), (2, 0));
    found.switch(found.identity.with_shards(3).unwrap()).unwrap();
    drop(found);
    let identity = open(&path).unwrap().identity;
    assert_eq!((identity.shards, identity.journals, identity.incarnation), (3, 1, 3));
}

#[test]
fn an_edited_damaged_or_newer_identity_is_refused() {
    let (_root, path) = fresh();
    drop(open(&path).unwrap());
    let file = path.join("identity");
    let good = fs::read_to_string(&file).unwrap();
    let refusal = |text: &str| {
        fs::write(&file, text).unwrap();
        match open(&path).unwrap_err() {
            DataDirError::Identity { error, .. } => error,
            other => panic!("{other}"),
        }
    };
    assert!(matches!(refusal(&good.replace("shards = 2", "shards = 3")), IdentityError::Damaged(_)));
    assert!(matches!(refusal(""), IdentityError::Damaged(_)));
    assert!(matches!(refusal(&good[..good.len() / 2]), IdentityError::Damaged(_)));
    assert_eq!(refusal(&good.replace("format = 1", "format = 2")), IdentityError::UnknownFormat(2));
    for flipped in 0..good.len() {
        let mut bytes = good.clone().into_bytes();
        bytes[flipped] ^= 0x80;
        fs::write(&file, bytes).unwrap();
        assert!(open(&path).is_err(), "byte {flipped} is not covered");
    }
    fs::write(&file, good).unwrap();
    assert!(open(&path).is_ok());
}

#[test]
fn an_identity_that_names_no_set_of_journals_has_the_first() {
    let (_root, path) = fresh();
    let identity = open(&path).unwrap().identity;
    let file = path.join("identity");
    let text = fs::read_to_string(&file).unwrap().replace("journals = 0\n", "");
    let (said, _) = text.split_once("crc32c").unwrap();
    fs::write(&file, format!("{said}crc32c = {:08x}\n", crc32c::crc32c(said.as_bytes()))).unwrap();
    assert_eq!(open(&path).unwrap().identity, Identity { incarnation: 2, ..identity });
}

#[test]
fn a_directory_that_is_somebody_elses_is_left_alone() {
    let (_root, path) = fresh();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("thesis.tex"), "x").unwrap();
    let error = open(&path).unwrap_err();
    assert!(matches!(&error, DataDirError::Foreign { example, .. } if example == "thesis.tex"), "{error}");
    assert!(!path.join("identity").exists());
}

#[test]
fn an_interrupted_first_start_can_be_repeated() {
    let (_root, path) = fresh();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("LOCK"), "4711\n").unwrap();
    fs::write(path.join("identity.new"), "half").unwrap();
    assert!(open(&path).unwrap().is_new);
}

#[test]
fn an_open_directory_is_closed_to_other_users() {
    let (_root, path) = fresh();
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    drop(open(&path).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn a_missing_parent_and_a_file_in_the_way_are_named() {
    let (_root, path) = fresh();
    assert!(matches!(open(&path.join("deeper")).unwrap_err(), DataDirError::NoParent(_)));
    fs::write(&path, "x").unwrap();
    assert!(matches!(open(&path).unwrap_err(), DataDirError::NotADirectory(_)));
}
