//! Named positions, kept by the broker with each partition.

use lockgate_wire::{Offset, proto};

use super::client::Client;
use crate::core::{Resend, Topic};
use crate::error::ClientError;

/// Cursors of one page of a listing.
const PAGE: u32 = 1_000;

/// The cursors of one topic. Made by [`Client::cursors`].
///
/// Changes are not sent again by themselves once an attempt was not answered. Cancel safety: a change whose future is
/// dropped may still be applied.
#[derive(Clone)]
pub struct Cursors {
    client: Client,
    topic: Topic,
}

impl Cursors {
    pub(super) fn new(client: Client, topic: Topic) -> Self {
        Self { client, topic }
    }

    /// The topic they belong to.
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Where a cursor is in a partition; `None` where it was never set.
    ///
    /// # Errors
    /// [`ClientError::NotFound`], [`ClientError::Unavailable`].
    pub async fn get(&self, name: &str, partition: u32) -> Result<Option<Offset>, ClientError> {
        let asked = proto::GetCursor { topic_id: self.topic.id.0, partition, name: name.to_owned() };
        let ok: proto::GetCursorOk = self.client.call(&asked, Resend::Safe).await?;
        Ok(ok.offset.map(Offset))
    }

    /// Sets a cursor to the first offset that is still to be read. Durable once this returns. It moves backwards only
    /// with `force`.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the kind `cursor_backwards` or `invalid_name`; [`ClientError::NotFound`],
    /// [`ClientError::Unavailable`], [`ClientError::OutcomeUnknown`].
    pub async fn commit(&self, name: &str, partition: u32, offset: Offset, force: bool) -> Result<(), ClientError> {
        let commit = proto::CommitCursor {
            topic_id: self.topic.id.0,
            partition,
            name: name.to_owned(),
            offset: offset.0,
            force,
        };
        let _: proto::CommitCursorOk = self.client.call(&commit, Resend::Never).await?;
        Ok(())
    }

    /// All cursors of a partition, in the order of their names.
    ///
    /// # Errors
    /// [`ClientError::NotFound`], [`ClientError::Unavailable`].
    pub async fn list(&self, partition: u32) -> Result<Vec<proto::Cursor>, ClientError> {
        let mut cursors: Vec<proto::Cursor> = Vec::new();
        loop {
            let after = cursors.last().map(|cursor| cursor.name.clone()).unwrap_or_default();
            let asked = proto::ListCursors { topic_id: self.topic.id.0, partition, after, limit: PAGE };
            let ok: proto::ListCursorsOk = self.client.call(&asked, Resend::Safe).await?;
            let more = ok.more && !ok.cursors.is_empty();
            cursors.extend(ok.cursors);
            if !more {
                return Ok(cursors);
            }
        }
    }

    /// Removes a cursor from a partition; tells whether it was there.
    ///
    /// # Errors
    /// [`ClientError::NotFound`], [`ClientError::Unavailable`], [`ClientError::OutcomeUnknown`].
    pub async fn delete(&self, name: &str, partition: u32) -> Result<bool, ClientError> {
        let delete = proto::DeleteCursor { topic_id: self.topic.id.0, partition, name: name.to_owned() };
        let ok: proto::DeleteCursorOk = self.client.call(&delete, Resend::Never).await?;
        Ok(ok.existed)
    }
}
