//! Commands and snapshots of the catalog: any that decode are applied or refused without harm, and a catalog that came to
//! life is the one that its snapshot gives back.

use std::collections::BTreeMap;

use lockgate_catalog::{Catalog, Command, TopicKind};
use lockgate_wire::{LogIndex, NodeId, Uid, WallMs};

pub(crate) fn run(bytes: &[u8]) {
    if let Ok(catalog) = Catalog::restore(bytes) {
        survives(&catalog);
        apply_some(catalog, &seed_commands());
    }
    // Commands, each behind its length.
    let (mut commands, mut rest) = (Vec::new(), bytes);
    while let Some((len, behind)) = rest.split_first() {
        let (command, behind) = behind.split_at(behind.len().min(usize::from(*len)));
        commands.extend(Command::decode(command));
        rest = behind;
    }
    for command in &commands {
        assert_eq!(Command::decode(&command.encode()).as_ref(), Ok(command));
    }
    apply_some(Catalog::default(), &commands);
}

fn apply_some(mut catalog: Catalog, commands: &[Command]) {
    for command in commands {
        let Some(next) = catalog.applied().0.checked_add(1).filter(|next| *next < u64::MAX / 2) else { return };
        let before = catalog.view();
        if catalog.apply(LogIndex(next), command).is_err() {
            assert!(catalog.view() == before, "a refused command changed something");
        }
    }
    survives(&catalog);
}

fn survives(catalog: &Catalog) {
    let snapshot = catalog.snapshot();
    let again = Catalog::restore(&snapshot).expect("a catalog's own snapshot is good");
    assert!(again == *catalog, "a snapshot gives back another catalog");
    assert_eq!(again.snapshot(), snapshot);
}

fn seed_commands() -> Vec<Command> {
    let time = WallMs(1_700_000_000_000);
    let settings = BTreeMap::from([("retention_ms".to_owned(), "60000".to_owned())]);
    let (kind, node) = (TopicKind::Stream, NodeId(1));
    let create = |name: &str, partitions: u32| Command::CreateTopic {
        name: name.into(),
        kind,
        partitions,
        replication_factor: 1,
        settings: settings.clone(),
        placement: vec![vec![node]; partitions as usize],
        time,
    };
    vec![
        Command::InitCluster { cluster_id: Uid([3; 16]), node, time },
        create("a", 1),
        create("tenant/space/b", 3),
        Command::AlterTopic { name: "a".into(), set: settings.clone(), if_version: Some(2), time },
        Command::DeleteTopic { name: "a".into(), time },
        create("a", 2),
        Command::AllocateProducerIds { count: 1000, time },
    ]
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut catalog = Catalog::default();
    let mut snapshots = Vec::new();
    let mut log = Vec::new();
    for (index, command) in (1..).map(LogIndex).zip(&seed_commands()) {
        let _ = catalog.apply(index, command);
        snapshots.push(catalog.snapshot().to_vec());
        let bytes = command.encode();
        log.push(u8::try_from(bytes.len()).unwrap());
        log.extend(bytes);
    }
    snapshots.push(log);
    snapshots
}
