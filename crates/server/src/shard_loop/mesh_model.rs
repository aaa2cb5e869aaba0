//! The way of a message from shard to shard, in every order that threads can take: outbox, inbox and wake. Nothing is lost,
//! nothing overtakes, and nobody sleeps while something waits for it.
//!
//! Outbox, inbox and wake are the real ones. What is modelled is the signal (an eventfd) and the loop around them: wait,
//! rest, look, bounded. Threads change places at the model's own operations, which surround the others.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::inbox::{InboxSender, Message, inbox_of};
use super::outbox::Outbox;
use crate::driver::{Signal, Wake};

/// Preemptions in a run beyond those that waiting brings: bugs of this kind need few.
const PREEMPTIONS_MAX: usize = 2;
/// Messages of each sender.
const MESSAGES: u8 = 2;

/// An eventfd.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

impl Signal for Arc<Bell> {
    fn signal(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

/// How much was taken so far. A sender's timer: it ends when trying again can matter, so that a run has an end.
#[derive(Default)]
struct Taken {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Taken {
    fn add_one(&self) {
        *self.count.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    fn wait_for_more_than(&self, seen: usize) -> usize {
        let mut count = self.count.lock().unwrap();
        while *count <= seen {
            count = self.changed.wait(count).unwrap();
        }
        *count
    }
}

fn message(sender: u8, number: u8) -> Message {
    Message::WorkerPanicked(format!("{sender} {number}"))
}

/// As a shard's loop sends: what finds no room waits in the outbox, and is tried again.
fn send_all(sender: u8, inbox: &InboxSender<Arc<Bell>>, taken: &Taken) {
    let mut outbox = Outbox::new();
    for number in 0..MESSAGES {
        outbox.push(message(sender, number), |message| inbox.try_send(message));
        thread::yield_now();
    }
    let mut seen = 0;
    while outbox.len() > 0 {
        seen = taken.wait_for_more_than(seen);
        outbox.retry(|message| inbox.try_send(message));
    }
}

/// A shard that takes.
struct Taker {
    bell: Arc<Bell>,
    wake: Arc<Wake<Arc<Bell>>>,
    inbox: Receiver<Message>,
    taken: Arc<Taken>,
}

impl Taker {
    /// As a shard's loop: it waits only when it saw nothing, and looks after it has said that it is awake.
    fn take_all(&self, count: usize, per_round: usize) -> Vec<String> {
        let mut texts = Vec::new();
        while texts.len() < count {
            if self.inbox.is_empty() {
                self.bell.wait();
            }
            self.wake.rest();
            thread::yield_now();
            for _ in 0..per_round {
                match self.inbox.try_recv() {
                    Ok(Message::WorkerPanicked(text)) => texts.push(text),
                    Ok(other) => panic!("{other:?} was never sent"),
                    Err(_) => break,
                }
                self.taken.add_one();
            }
        }
        texts
    }
}

fn explore(senders: u8, capacity: usize, per_round: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(move || {
        let bell = Arc::new(Bell::default());
        let wake = Arc::new(Wake::new(bell.clone()));
        let (sender, inbox) = inbox_of(wake.clone(), capacity);
        let taken = Arc::new(Taken::default());
        let senders: Vec<_> = (0..senders)
            .map(|number| {
                let (sender, taken) = (sender.clone(), taken.clone());
                thread::spawn(move || send_all(number, &sender, &taken))
            })
            .collect();
        let count = senders.len() * usize::from(MESSAGES);
        let taker = Taker { bell, wake, inbox, taken };
        let texts = taker.take_all(count, per_round);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert!(taker.inbox.is_empty(), "something came twice");
        for number in 0..count / usize::from(MESSAGES) {
            let of_one: Vec<&String> = texts.iter().filter(|text| text.starts_with(&number.to_string())).collect();
            let expected: Vec<String> = (0..MESSAGES).map(|message| format!("{number} {message}")).collect();
            assert_eq!(of_one, expected.iter().collect::<Vec<_>>(), "out of order, or not all");
        }
    });
}

#[test]
fn no_message_is_lost_or_overtaken_and_no_wake_is_missed() {
    explore(2, 4, 4);
}

#[test]
fn a_full_inbox_keeps_the_order_of_each_sender_and_wakes_all_the_same() {
    explore(1, 1, 1);
    explore(2, 1, 4);
}

#[test]
fn a_round_that_takes_less_than_there_is_comes_back_for_the_rest() {
    explore(2, 4, 1);
}
