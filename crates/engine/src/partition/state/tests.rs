use lockgate_wire::batch::Producer;
use lockgate_wire::{GroupId, ReplicaId};

use super::*;

fn header(state: &State) -> CheckpointHeader {
    let (group, replica) = (GroupId(3), ReplicaId(4));
    CheckpointHeader { group, replica, index: state.index, term: state.term, next_offset: state.next_offset }
}

#[test]
fn a_state_of_many_chunks_comes_back_as_it_was() {
    let mut state = State { next_offset: Offset(70), index: LogIndex(9), term: Term(2), ..State::default() };
    for id in 0..20_000 {
        let producer = Producer { id: ProducerId(id), epoch: (id % 7) as i16, base_sequence: 0 };
        for n in 0..6 {
            let (base_offset, append_time) = (Offset(n as u64), WallMs(id + i64::from(n)));
            state.producers.apply(&producer, Remembered { first: n, last: n, base_offset, append_time });
        }
    }
    for i in 0..10_000_u64 {
        let position = Position { offset: Offset(i % 70), committed: WallMs(1) };
        state.cursors.commit(&format!("{i:0200}"), position, false, Offset(70)).unwrap();
    }
    let chunks = state.chunks();
    assert!(chunks.len() > 1 && chunks.iter().all(|chunk| chunk.len() <= MAX_CHUNK_BYTES));
    let restored = State::from_chunks(&header(&state), &chunks).unwrap();
    assert!(state.producers.applied().eq(restored.producers.applied()));
    assert_eq!(state.producers.oldest(), restored.producers.oldest());
    assert_eq!(state.cursors, restored.cursors);
    assert_eq!((restored.next_offset, restored.index, restored.term), (Offset(70), LogIndex(9), Term(2)));
}

#[test]
fn chunks_that_are_none_are_refused() {
    let state = State::default();
    assert_eq!(state.chunks().len(), 0);
    assert!(State::from_chunks(&header(&state), &[Bytes::from_static(b"\xff\xff")]).is_none());
}
