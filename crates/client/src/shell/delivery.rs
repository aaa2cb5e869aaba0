//! The answer to a record: one completion a batch, shared by the deliveries of its records.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::ClientError;
use crate::record::Receipt;

/// A batch's answer and those who wait for it.
#[derive(Default)]
pub(super) struct Completion {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    result: Option<Result<Receipt, ClientError>>,
    wakers: Vec<Waker>,
}

impl Completion {
    pub(super) fn complete(&self, result: Result<Receipt, ClientError>) {
        let mut state = self.lock();
        state.result = Some(result);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Resolves to a record's [`Receipt`] once its batch is answered.
///
/// Dropping it changes nothing for the record. Cancel-safe: it can be polled again, by another task too, until it
/// resolved.
#[must_use = "a record is not acknowledged before its delivery resolves; flush and close wait for all of them"]
pub struct Delivery {
    completion: Arc<Completion>,
    index: u32,
    /// Where in the completion's wakers this delivery's is.
    slot: Option<usize>,
}

impl Delivery {
    pub(super) fn new(completion: Arc<Completion>, index: u32) -> Self {
        Self { completion, index, slot: None }
    }
}

impl Future for Delivery {
    type Output = Result<Receipt, ClientError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let mut state = this.completion.lock();
        if let Some(result) = &state.result {
            let index = u64::from(this.index);
            return Poll::Ready(
                result.clone().map(|receipt| Receipt { offset: receipt.offset.map(|o| o.plus(index)), ..receipt }),
            );
        }
        match this.slot {
            Some(slot) => state.wakers[slot].clone_from(context.waker()),
            None => {
                this.slot = Some(state.wakers.len());
                state.wakers.push(context.waker().clone());
            }
        }
        Poll::Pending
    }
}
