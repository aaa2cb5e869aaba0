//! What shards are to be told and have not taken yet, because their inboxes are full.

use std::time::Duration;

use lockgate_wire::ShardId;

use crate::shard_loop::inbox::{InboxSender, Message};

/// How soon a message that found no room is tried again.
pub(super) const RETRY: Duration = Duration::from_millis(10);

/// Messages of the supervisor by the order in which they are to arrive; a shard gets few in its life.
#[derive(Default)]
pub(super) struct Untold(Vec<(ShardId, Message)>);

impl Untold {
    pub(super) fn push(&mut self, shard: ShardId, message: Message) {
        self.0.push((shard, message));
    }

    /// Tells what there is room for. The others keep their order.
    pub(super) fn tell(&mut self, inboxes: &[InboxSender]) {
        let mut full: Vec<ShardId> = Vec::new();
        for (shard, message) in std::mem::take(&mut self.0) {
            if full.contains(&shard) {
                self.0.push((shard, message));
            } else if let Some(message) = inboxes[usize::from(shard.0)].try_send(message) {
                full.push(shard);
                self.0.push((shard, message));
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Driver;
    use crate::driver::epoll::EpollDriver;
    use crate::shard_loop::inbox::inbox;

    #[test]
    fn a_stop_that_finds_an_inbox_full_is_told_once_there_is_room_and_before_what_follows_it() {
        let drivers = [EpollDriver::new().unwrap(), EpollDriver::new().unwrap()];
        let [(busy, busy_inbox), (idle, idle_inbox)] = drivers.each_ref().map(|driver| inbox(driver.wake_handle()));
        while busy.try_send(Message::WorkerPanicked("of before".into())).is_none() {}
        let inboxes = [busy, idle];
        let mut untold = Untold::default();
        (0..2).for_each(|shard| untold.push(ShardId(shard), Message::Stop));
        untold.tell(&inboxes);
        assert!(matches!(idle_inbox.try_recv(), Ok(Message::Stop)), "a full inbox holds up no other shard");
        assert!(!untold.is_empty());
        untold.push(ShardId(0), Message::Abandon);
        let mut told = Vec::new();
        while !untold.is_empty() {
            untold.tell(&inboxes);
            told.extend(busy_inbox.try_recv());
        }
        told.extend(busy_inbox.try_iter());
        let told = told.iter().filter(|message| !matches!(message, Message::WorkerPanicked(_))).collect::<Vec<_>>();
        assert!(matches!(told[..], [Message::Stop, Message::Abandon]), "{told:?}");
        assert!(idle_inbox.is_empty(), "nothing is told twice");
    }

    #[test]
    fn a_shard_that_is_gone_is_told_nothing_and_waited_for_by_nobody() {
        let driver = EpollDriver::new().unwrap();
        let (sender, receiver) = inbox(driver.wake_handle());
        drop(receiver);
        let mut untold = Untold::default();
        untold.push(ShardId(0), Message::Stop);
        untold.tell(&[sender]);
        assert!(untold.is_empty());
    }
}
