//! What a shard thread has for others and could not hand over yet. It never waits: what finds no room is kept in order
//! and tried again. The engine bounds how much that can be.

use std::collections::VecDeque;

pub(super) struct Outbox<T> {
    waiting: VecDeque<T>,
}

impl<T> Outbox<T> {
    pub(super) fn new() -> Self {
        Self { waiting: VecDeque::new() }
    }

    /// Hands the item over, or keeps it behind those that wait. `hand_over` gives back what finds no room.
    pub(super) fn push(&mut self, item: T, hand_over: impl FnOnce(T) -> Option<T>) {
        if !self.waiting.is_empty() {
            return self.waiting.push_back(item);
        }
        if let Some(item) = hand_over(item) {
            self.waiting.push_back(item);
        }
    }

    /// Tries again, in order.
    pub(super) fn retry(&mut self, mut hand_over: impl FnMut(T) -> Option<T>) {
        while let Some(item) = self.waiting.pop_front() {
            if let Some(item) = hand_over(item) {
                return self.waiting.push_front(item);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_keeps_its_place_in_the_order() {
        let (sender, receiver) = crossbeam_channel::bounded(2);
        let hand_over = |item: u32| sender.try_send(item).err().map(|full| full.into_inner());
        let mut outbox = Outbox::new();
        (1..=5).for_each(|item| outbox.push(item, hand_over));
        assert_eq!(outbox.len(), 3);
        assert_eq!(receiver.recv(), Ok(1));
        outbox.push(6, hand_over);
        assert_eq!(outbox.len(), 4, "a later item does not overtake");
        let mut got = vec![1];
        while outbox.len() > 0 {
            outbox.retry(hand_over);
            got.extend(receiver.try_iter());
        }
        assert_eq!(got, [1, 2, 3, 4, 5, 6]);
    }
}
