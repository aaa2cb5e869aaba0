//! Named positions of a partition: part of its replicated state.

use std::collections::BTreeMap;
use std::ops::Bound;

use lockgate_wire::{Error, ErrorKind, Offset, WallMs};

/// A position and when it was committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    pub(crate) offset: Offset,
    pub(crate) committed: WallMs,
}

/// All cursors of a partition.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Cursors {
    by_name: BTreeMap<String, Position>,
}

impl Cursors {
    pub(crate) fn get(&self, name: &str) -> Option<Position> {
        self.by_name.get(name).copied()
    }

    /// Applies a commit. `end` is the high watermark; the refusals are those of the contract and change nothing.
    pub(crate) fn commit(&mut self, name: &str, position: Position, force: bool, end: Offset) -> Result<(), Error> {
        if position.offset > end {
            let message =
                format!("cursor '{name}' cannot be committed at {}: the partition ends at {end}", position.offset);
            let mut error = Error::new(ErrorKind::OffsetOutOfRange, message);
            error.details.high_watermark = Some(end.0);
            return Err(error);
        }
        match self.by_name.get_mut(name) {
            Some(old) if position.offset < old.offset && !force => Err(Error::new(
                ErrorKind::CursorBackwards,
                format!(
                    "cursor '{name}' is at {} and would go back to {}; use force to allow that",
                    old.offset, position.offset
                ),
            )),
            Some(old) => {
                *old = position;
                Ok(())
            }
            None => {
                self.by_name.insert(name.into(), position);
                Ok(())
            }
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Applies a deletion; says whether there was one.
    pub(crate) fn delete(&mut self, name: &str) -> bool {
        self.by_name.remove(name).is_some()
    }

    /// Restores one from a checkpoint.
    pub(crate) fn restore(&mut self, name: String, position: Position) {
        self.by_name.insert(name, position);
    }

    /// In name order, those after `after`.
    pub(crate) fn after(&self, after: &str) -> impl Iterator<Item = (&String, &Position)> {
        self.by_name.range::<str, _>((Bound::Excluded(after), Bound::Unbounded))
    }

    /// All of them, in name order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Position)> {
        self.by_name.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u64) -> Position {
        Position { offset: Offset(offset), committed: WallMs(1) }
    }

    #[test]
    fn a_cursor_moves_backwards_only_with_force() {
        let mut cursors = Cursors::default();
        cursors.commit("c", at(5), false, Offset(9)).unwrap();
        assert_eq!(cursors.commit("c", at(4), false, Offset(9)).unwrap_err().kind, ErrorKind::CursorBackwards);
        assert_eq!(cursors.get("c"), Some(at(5)));
        cursors.commit("c", at(5), false, Offset(9)).unwrap();
        cursors.commit("c", at(4), true, Offset(9)).unwrap();
        assert_eq!(cursors.get("c"), Some(at(4)));
    }

    #[test]
    fn a_cursor_is_never_committed_beyond_the_high_watermark() {
        let mut cursors = Cursors::default();
        let error = cursors.commit("c", at(10), true, Offset(9)).unwrap_err();
        assert_eq!((error.kind, error.details.high_watermark), (ErrorKind::OffsetOutOfRange, Some(9)));
        cursors.commit("c", at(9), false, Offset(9)).unwrap();
    }
}
